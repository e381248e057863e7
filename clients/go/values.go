package storeclient

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Params are the values of `$name` in a script. They are bound, never pasted into its text.
type Params = map[string]any

// Object is a record or an object, by its fields.
type Object = map[string]any

// NoneType is the type of [None].
type NoneType struct{}

// None is the value NONE, an absent value; nil is null.
var None = NoneType{}

// String returns NONE.
func (NoneType) String() string { return "NONE" }

// Decimal is an exact decimal number of at most 34 digits. It keeps its scale: 12.30 is not 12.3, though
// [Decimal.Rat] of both is equal. The zero Decimal is 0.
type Decimal struct{ text string }

var decimalForm = regexp.MustCompile(`^[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$`)

const (
	decimalDigits   = 34
	decimalExponent = 6143
)

// ParseDecimal parses digits with an optional point and exponent, such as 12.30 or 1E+3.
func ParseDecimal(text string) (Decimal, error) {
	found := decimalForm.FindStringSubmatch(text)
	if found == nil {
		return Decimal{}, fmt.Errorf("storeclient: %.40q is no decimal", text)
	}
	if digits := strings.TrimLeft(found[1]+found[2], "0"); len(digits) > decimalDigits {
		return Decimal{}, fmt.Errorf("storeclient: %.40q has more than %d digits", text, decimalDigits)
	}
	if found[3] != "" {
		if n, err := strconv.Atoi(found[3]); err != nil || n < -2*decimalExponent || n > 2*decimalExponent {
			return Decimal{}, fmt.Errorf("storeclient: the exponent of %.40q is beyond %d", text, decimalExponent)
		}
	}
	return Decimal{text}, nil
}

// MustDecimal is like [ParseDecimal] but panics on an error. It is for constants.
func MustDecimal(text string) Decimal {
	found, err := ParseDecimal(text)
	if err != nil {
		panic(err)
	}
	return found
}

// NewDecimal returns unscaled × 10^-scale: NewDecimal(1230, 2) is 12.30.
func NewDecimal(unscaled int64, scale int) (Decimal, error) {
	sign, digits := "", strconv.FormatInt(unscaled, 10)
	if unscaled < 0 {
		sign, digits = "-", digits[1:]
	}
	if scale <= 0 || scale > 2*decimalDigits {
		return ParseDecimal(fmt.Sprintf("%s%sE%d", sign, digits, -scale))
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	return ParseDecimal(sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:])
}

// String returns the digits as they are sent.
func (d Decimal) String() string {
	if d.text == "" {
		return "0"
	}
	return d.text
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	found, ok := new(big.Rat).SetString(d.String())
	if !ok {
		panic("storeclient: a Decimal that was not parsed: " + d.text)
	}
	return found
}

// Float64 returns the nearest float64.
func (d Decimal) Float64() float64 {
	found, _ := d.Rat().Float64()
	return found
}

// Duration is a duration of the language in microseconds; its range is a thousand times that of a
// [time.Duration], which is sent as a Duration too, rounded to the microsecond.
type Duration int64

// Common durations.
const (
	Microsecond Duration = 1
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)

// DurationOf returns d rounded to the microsecond.
func DurationOf(d time.Duration) Duration {
	return Duration(d.Round(time.Microsecond) / time.Microsecond)
}

// Std returns d as a [time.Duration], saturated at its limits.
func (d Duration) Std() time.Duration {
	const most = Duration(math.MaxInt64 / int64(time.Microsecond))
	switch {
	case d > most:
		return math.MaxInt64
	case d < -most:
		return math.MinInt64
	}
	return time.Duration(d) * time.Microsecond
}

var durationUnits = []struct {
	unit string
	size uint64
}{
	{"w", 604_800_000_000}, {"d", 86_400_000_000}, {"h", 3_600_000_000}, {"m", 60_000_000},
	{"s", 1_000_000}, {"ms", 1_000}, {"us", 1},
}

// String returns the duration in the form of the language, such as 1h30m.
func (d Duration) String() string {
	var text strings.Builder
	rest := uint64(d)
	if d < 0 {
		text.WriteByte('-')
		rest = -rest
	}
	if rest == 0 {
		return "0s"
	}
	for _, one := range durationUnits {
		if count := rest / one.size; count > 0 {
			text.WriteString(strconv.FormatUint(count, 10))
			text.WriteString(one.unit)
			rest %= one.size
		}
	}
	return text.String()
}

// UUID is a uuid value.
type UUID [16]byte

// ParseUUID parses 32 hexadecimal digits, with or without hyphens.
func ParseUUID(text string) (UUID, error) {
	var found UUID
	digits := text
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		digits = text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	}
	if len(digits) != 32 {
		return found, fmt.Errorf("storeclient: %.40q is no uuid", text)
	}
	if _, err := hex.Decode(found[:], []byte(digits)); err != nil {
		return found, fmt.Errorf("storeclient: %.40q is no uuid", text)
	}
	return found, nil
}

// String returns the hyphenated form.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// RecordID identifies a record. ID is a string, an int64, a [UUID] or a []any of these.
type RecordID struct {
	Table string
	ID    any
}

// NewRecordID returns the id of a record of a table.
func NewRecordID(table string, id any) RecordID {
	switch known := id.(type) {
	case int:
		return RecordID{table, int64(known)}
	case []any:
		items := make([]any, len(known))
		for n, item := range known {
			items[n] = NewRecordID(table, item).ID
		}
		return RecordID{table, items}
	}
	return RecordID{table, id}
}

var bareName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// String returns the record in the form of the language, such as person:1 or person:`any text`.
func (r RecordID) String() string {
	if name, ok := r.ID.(string); ok {
		return bare(r.Table) + ":" + bare(name)
	}
	return bare(r.Table) + ":" + idText(r.ID)
}

// Equal reports whether r and other identify the same record.
func (r RecordID) Equal(other RecordID) bool { return r.String() == other.String() }

func bare(name string) string {
	if bareName.MatchString(name) {
		return name
	}
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

var idEscapes = strings.NewReplacer(
	"\n", `\n`, "\t", `\t`, "\r", `\r`, `\`, `\\`, "'", `\'`, "\x00", `\u{0}`,
)

func idText(id any) string {
	switch known := id.(type) {
	case string:
		return "'" + idEscapes.Replace(known) + "'"
	case UUID:
		return "u'" + known.String() + "'"
	case []any:
		parts := make([]string, len(known))
		for n, item := range known {
			parts[n] = idText(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(id)
}

var nameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// QuoteName returns the name of a table, field or the like, quoted for a statement. Values are bound
// with [Params] and never quoted.
func QuoteName(name string) (string, error) {
	if err := checkNames(name); err != nil {
		return "", err
	}
	return "`" + name + "`", nil
}

func checkNames(names ...string) error {
	for _, name := range names {
		if !nameForm.MatchString(name) {
			return fmt.Errorf("storeclient: %.80q is no name: it must match %s", name, nameForm)
		}
	}
	return nil
}
