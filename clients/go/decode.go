package storeclient

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode"
)

// A field of a struct, and its name in an object.
type structField struct {
	name      string
	index     []int
	omitEmpty bool
}

var knownFields sync.Map // of reflect.Type: []structField

func fieldsOf(t reflect.Type) []structField {
	if known, ok := knownFields.Load(t); ok {
		return known.([]structField)
	}
	var found []structField
	for _, field := range reflect.VisibleFields(t) {
		tag, isTagged := field.Tag.Lookup("store")
		name, more, _ := strings.Cut(tag, ",")
		embedded := field.Anonymous && !isTagged && field.Type.Kind() == reflect.Struct
		if !field.IsExported() || name == "-" || embedded || !isReachable(t, field.Index) {
			continue
		}
		if name == "" {
			name = lowerFirst(field.Name)
		}
		found = append(found, structField{name, field.Index, more == "omitempty"})
	}
	knownFields.Store(t, found)
	return found
}

// isReachable reports whether a promoted field stands in structs alone, none of them tagged: what
// stands behind an embedded pointer is that pointer's.
func isReachable(t reflect.Type, index []int) bool {
	for _, at := range index[:len(index)-1] {
		field := t.Field(at)
		if _, isTagged := field.Tag.Lookup("store"); isTagged || field.Type.Kind() != reflect.Struct {
			return false
		}
		t = field.Type
	}
	return true
}

// lowerFirst returns a name with its first letters in lower case: id of ID, createdAt of CreatedAt,
// urlPath of URLPath.
func lowerFirst(name string) string {
	letters := []rune(name)
	for n, one := range letters {
		if !unicode.IsUpper(one) || (n > 0 && n+1 < len(letters) && unicode.IsLower(letters[n+1])) {
			break
		}
		letters[n] = unicode.ToLower(one)
	}
	return string(letters)
}

// DecodeError reports a value that does not fit the Go type it is decoded into.
type DecodeError struct {
	Path   string // location in the value, such as [3].price
	Reason string
}

func (e *DecodeError) Error() string {
	if e.Path == "" {
		return "storeclient: " + e.Reason
	}
	return "storeclient: " + strings.TrimPrefix(e.Path, ".") + ": " + e.Reason
}

// Decode stores value in the value that into points to: objects in structs and maps, arrays in slices. A
// field that the object lacks is left as it is; null and [None] fit pointers, slices, maps and any. A
// number fits any numeric type that holds it exactly, and a duration fits [time.Duration]. An error is a
// [*DecodeError].
func Decode(value any, into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("storeclient: Decode stores in what a pointer points to, not in a %T", into)
	}
	if err := decodeInto(value, target.Elem()); err != nil {
		return err
	}
	return nil
}

func as[T any](value any) (T, error) {
	var found T
	if known, ok := value.(T); ok {
		return known, nil
	}
	err := Decode(value, &found)
	return found, err
}

func decodeInto(value any, target reflect.Value) *DecodeError {
	if target.Kind() == reflect.Interface && target.NumMethod() == 0 {
		if value == nil {
			target.SetZero()
		} else {
			target.Set(reflect.ValueOf(value))
		}
		return nil
	}
	if value == nil || value == any(None) {
		return decodeNothing(value, target)
	}
	if given := reflect.ValueOf(value); given.Type() == target.Type() {
		target.Set(given)
		return nil
	}
	if target.Kind() == reflect.Pointer {
		if target.IsNil() {
			target.Set(reflect.New(target.Type().Elem()))
		}
		return decodeInto(value, target.Elem())
	}
	switch v := value.(type) {
	case Duration:
		if target.Type() == reflect.TypeFor[time.Duration]() {
			if DurationOf(v.Std()) != v {
				return misfit("the duration %v is too long for a time.Duration", v)
			}
			target.SetInt(int64(v.Std()))
			return nil
		}
	case bool:
		if target.Kind() == reflect.Bool {
			target.SetBool(v)
			return nil
		}
	case int64:
		return decodeInt(v, target)
	case float64:
		if target.CanFloat() && !target.OverflowFloat(v) {
			target.SetFloat(v)
			return nil
		}
	case string:
		if target.Kind() == reflect.String {
			target.SetString(v)
			return nil
		}
	case []byte:
		if target.Kind() == reflect.Slice && target.Type().Elem().Kind() == reflect.Uint8 {
			target.SetBytes(v)
			return nil
		}
	case []any:
		return decodeArray(v, target)
	case map[string]any:
		return decodeObject(v, target)
	}
	return misfit("a %s does not fit %v", kindOf(value), target.Type())
}

func misfit(format string, args ...any) *DecodeError {
	return &DecodeError{Reason: fmt.Sprintf(format, args...)}
}

func decodeNothing(value any, target reflect.Value) *DecodeError {
	switch target.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		target.SetZero()
		return nil
	}
	if target.Type() == reflect.TypeFor[NoneType]() && value != nil {
		return nil
	}
	return misfit("%s does not fit %v", kindOf(value), target.Type())
}

func decodeInt(v int64, target reflect.Value) *DecodeError {
	kept := reflect.TypeFor[Duration]()
	switch {
	case target.Type() == kept || target.Type() == reflect.TypeFor[time.Duration]():
	case target.CanInt() && !target.OverflowInt(v):
		target.SetInt(v)
		return nil
	case target.CanUint() && v >= 0 && !target.OverflowUint(uint64(v)):
		target.SetUint(uint64(v))
		return nil
	case target.CanFloat() && v >= -1<<53 && v <= 1<<53 && (target.Kind() == reflect.Float64 || math.Abs(float64(v)) <= 1<<24):
		target.SetFloat(float64(v))
		return nil
	}
	return misfit("the int %d does not fit %v", v, target.Type())
}

func decodeArray(v []any, target reflect.Value) *DecodeError {
	switch target.Kind() {
	case reflect.Slice:
		target.Set(reflect.MakeSlice(target.Type(), len(v), len(v)))
	case reflect.Array:
		if target.Len() != len(v) {
			return misfit("an array of %d does not fit %v", len(v), target.Type())
		}
	default:
		return misfit("an array does not fit %v", target.Type())
	}
	for n, item := range v {
		if err := decodeInto(item, target.Index(n)); err != nil {
			err.Path = fmt.Sprintf("[%d]", n) + err.Path
			return err
		}
	}
	return nil
}

func decodeObject(v map[string]any, target reflect.Value) *DecodeError {
	switch {
	case target.Kind() == reflect.Map && target.Type().Key().Kind() == reflect.String:
		target.Set(reflect.MakeMapWithSize(target.Type(), len(v)))
		for name, item := range v {
			one := reflect.New(target.Type().Elem()).Elem()
			if err := decodeInto(item, one); err != nil {
				err.Path = "." + name + err.Path
				return err
			}
			target.SetMapIndex(reflect.ValueOf(name).Convert(target.Type().Key()), one)
		}
		return nil
	case target.Kind() == reflect.Struct && !isOwn(target.Type()):
		for _, field := range fieldsOf(target.Type()) {
			item, ok := v[field.name]
			if !ok || item == any(None) {
				continue
			}
			if err := decodeInto(item, target.FieldByIndex(field.index)); err != nil {
				err.Path = "." + field.name + err.Path
				return err
			}
		}
		return nil
	}
	return misfit("an object does not fit %v", target.Type())
}

// isOwn reports whether a struct is a value by itself, and no object.
func isOwn(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[Decimal](), reflect.TypeFor[RecordID](), reflect.TypeFor[NoneType]():
		return true
	}
	return false
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case NoneType:
		return "NONE"
	case int64:
		return "int"
	case float64:
		return "float"
	case []byte:
		return "bytes"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case Decimal:
		return "decimal"
	case time.Time:
		return "datetime"
	case Duration:
		return "duration"
	case UUID:
		return "uuid"
	case RecordID:
		return "record"
	}
	return fmt.Sprintf("%T", value)
}
