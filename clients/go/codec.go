package storeclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
	"unicode/utf8"
)

// The types of the language that msgpack has no form for, as extensions of it.
const (
	extTimestamp = -1
	extDecimal   = 1
	extDuration  = 2
	extUUID      = 3
	extRecord    = 4
	extNone      = 5
)

const (
	// depthMost bounds how deep a value nests.
	depthMost = 64
	// frameDepth bounds how deep a frame of the node nests: a value, and its envelope around it, which is
	// deepest for a change of a history: frame, body, results, one of these, its value, its entries, one
	// of these, its changes, one of these.
	frameDepth = depthMost + 16
	// roomMost are the items that room is made for because a length says so: the rest as they come.
	roomMost = 1024
)

// ValueError reports an argument that is no value of the language. Nothing was sent.
type ValueError struct {
	Path   string // location of the value, such as $item.sizes[2]
	Reason string
}

func (e *ValueError) Error() string {
	if e.Path == "" {
		return "storeclient: " + e.Reason
	}
	return "storeclient: " + e.Path + ": " + e.Reason
}

func noValue(format string, args ...any) *ValueError {
	return &ValueError{Reason: fmt.Sprintf(format, args...)}
}

func under(piece string, err *ValueError) *ValueError {
	err.Path = piece + err.Path
	return err
}

// --- encoding ------------------------------------------------------------------------------------

func appendArrayHead(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return append(b, 0xdc, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendMapHead(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		return append(b, 0xde, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
}

func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n < 128:
		return append(b, byte(n))
	case n < 0 && n >= -32:
		return append(b, byte(n))
	case n >= 0 && n <= math.MaxUint8:
		return append(b, 0xcc, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		return append(b, 0xcd, byte(n>>8), byte(n))
	case n >= 0 && n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	case n >= 0:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(n))
	case n >= math.MinInt8:
		return append(b, 0xd0, byte(n))
	case n >= math.MinInt16:
		return append(b, 0xd1, byte(n>>8), byte(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

func appendString(b []byte, s string) []byte {
	n := len(s)
	switch {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = append(b, 0xda, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendBytes(b, data []byte) []byte {
	n := len(data)
	switch {
	case n <= math.MaxUint8:
		b = append(b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		b = append(b, 0xc5, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, data...)
}

func appendExt(b []byte, code int8, data []byte) []byte {
	switch n := len(data); {
	case n > 0 && n <= 16 && n&(n-1) == 0:
		b = append(b, 0xd4+byte(bits.TrailingZeros(uint(n))), byte(code))
	case n <= math.MaxUint8:
		b = append(b, 0xc7, byte(n), byte(code))
	case n <= math.MaxUint16:
		b = append(b, 0xc8, byte(n>>8), byte(n), byte(code))
	default:
		b = append(binary.BigEndian.AppendUint32(append(b, 0xc9), uint32(n)), byte(code))
	}
	return append(b, data...)
}

func appendDuration(b []byte, d Duration) []byte {
	b = append(b, 0xd7, extDuration)
	return binary.BigEndian.AppendUint64(b, uint64(d))
}

func appendTime(b []byte, at time.Time) ([]byte, *ValueError) {
	at = at.UTC()
	if year := at.Year(); year < 1 || year > 9999 {
		return b, noValue("%v is beyond the years 1 to 9999", at)
	}
	seconds, nanos := at.Unix(), at.Nanosecond()
	switch {
	case nanos == 0 && seconds >= 0 && seconds <= math.MaxUint32:
		b = append(b, 0xd6, 0xff)
		return binary.BigEndian.AppendUint32(b, uint32(seconds)), nil
	case seconds >= 0 && seconds < 1<<34:
		b = append(b, 0xd7, 0xff)
		return binary.BigEndian.AppendUint64(b, uint64(nanos)<<34|uint64(seconds)), nil
	}
	b = binary.BigEndian.AppendUint32(append(b, 0xc7, 12, 0xff), uint32(nanos))
	return binary.BigEndian.AppendUint64(b, uint64(seconds)), nil
}

// appendGiven appends a value that a request gives: what stands around it is no level of it, and of rows
// each is one by itself.
func appendGiven(b []byte, value any) ([]byte, *ValueError) {
	depth := 0
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		depth = -1 // the node says whether these are rows
	}
	return appendValue(b, value, depth)
}

// appendValue appends a value that stands in so many others.
func appendValue(b []byte, value any, depth int) ([]byte, *ValueError) {
	switch v := value.(type) {
	case nil:
		return append(b, 0xc0), nil
	case string:
		if !utf8.ValidString(v) {
			return b, noValue("a string is UTF-8: bytes go as []byte")
		}
		return appendString(b, v), nil
	case bool:
		if v {
			return append(b, 0xc3), nil
		}
		return append(b, 0xc2), nil
	case int:
		return appendInt(b, int64(v)), nil
	case int64:
		return appendInt(b, v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return b, noValue("%v is no number of the language", v)
		}
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v)), nil
	case []byte:
		if v == nil {
			return append(b, 0xc0), nil
		}
		return appendBytes(b, v), nil
	case NoneType:
		return append(b, 0xc7, 0, extNone), nil
	case Decimal:
		return appendExt(b, extDecimal, []byte(v.String())), nil
	case time.Time:
		return appendTime(b, v)
	case Duration:
		return appendDuration(b, v), nil
	case time.Duration:
		return appendDuration(b, DurationOf(v)), nil
	case UUID:
		return append(append(b, 0xd8, extUUID), v[:]...), nil
	case RecordID:
		return appendRecord(b, v)
	case map[string]any:
		return appendObject(b, v, depth)
	case []any:
		return appendArray(b, len(v), func(n int) any { return v[n] }, depth)
	case []string:
		return appendArray(b, len(v), func(n int) any { return v[n] }, depth)
	case []float64:
		return appendFloats(b, v, depth)
	case []float32:
		return appendFloats(b, v, depth)
	}
	return appendReflected(b, reflect.ValueOf(value), depth)
}

func appendRecord(b []byte, record RecordID) ([]byte, *ValueError) {
	inner, err := appendID(appendString(appendArrayHead(nil, 2), record.Table), record.ID, 0)
	if err != nil {
		return b, err
	}
	return appendExt(b, extRecord, inner), nil
}

func appendID(b []byte, id any, depth int) ([]byte, *ValueError) {
	switch v := id.(type) {
	case string, int64, int, UUID:
		return appendValue(b, v, depth)
	case []any:
		if depth >= depthMost {
			return b, noValue("it nests deeper than %d", depthMost)
		}
		b = appendArrayHead(b, len(v))
		for n, item := range v {
			var err *ValueError
			if b, err = appendID(b, item, depth+1); err != nil {
				return b, under(fmt.Sprintf("[%d]", n), err)
			}
		}
		return b, nil
	}
	return b, noValue("an id of a record is a string, an int64, a UUID or a []any of these, not %T", id)
}

func appendObject(b []byte, object map[string]any, depth int) ([]byte, *ValueError) {
	if depth >= depthMost {
		return b, noValue("it nests deeper than %d", depthMost)
	}
	b = appendMapHead(b, len(object))
	for name, item := range object {
		if !utf8.ValidString(name) {
			return b, noValue("the name of a field is UTF-8")
		}
		var err *ValueError
		if b, err = appendValue(appendString(b, name), item, depth+1); err != nil {
			return b, under("."+name, err)
		}
	}
	return b, nil
}

func appendArray(b []byte, count int, item func(int) any, depth int) ([]byte, *ValueError) {
	if depth >= depthMost {
		return b, noValue("it nests deeper than %d", depthMost)
	}
	b = appendArrayHead(b, count)
	for n := range count {
		var err *ValueError
		if b, err = appendValue(b, item(n), depth+1); err != nil {
			return b, under(fmt.Sprintf("[%d]", n), err)
		}
	}
	return b, nil
}

// appendFloats appends a vector, without an interface around each number.
func appendFloats[F float32 | float64](b []byte, vector []F, depth int) ([]byte, *ValueError) {
	if vector == nil {
		return append(b, 0xc0), nil
	}
	if depth >= depthMost {
		return b, noValue("it nests deeper than %d", depthMost)
	}
	b = appendArrayHead(b, len(vector))
	for n, one := range vector {
		number := float64(one)
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return b, under(fmt.Sprintf("[%d]", n), noValue("%v is no number of the language", number))
		}
		b = binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(number))
	}
	return b, nil
}

func appendReflected(b []byte, v reflect.Value, depth int) ([]byte, *ValueError) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, 0xc0), nil
		}
		if depth >= depthMost {
			return b, noValue("it nests deeper than %d", depthMost)
		}
		return appendValue(b, v.Elem().Interface(), depth)
	case reflect.Bool:
		return appendValue(b, v.Bool(), depth)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInt(b, v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if v.Uint() > math.MaxInt64 {
			return b, noValue("%d is beyond 64 bits with a sign", v.Uint())
		}
		return appendInt(b, int64(v.Uint())), nil
	case reflect.Float32, reflect.Float64:
		return appendValue(b, v.Float(), depth)
	case reflect.String:
		return appendValue(b, v.String(), depth)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return append(b, 0xc0), nil
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			data := make([]byte, v.Len())
			reflect.Copy(reflect.ValueOf(data), v)
			return appendBytes(b, data), nil
		}
		return appendArray(b, v.Len(), func(n int) any { return v.Index(n).Interface() }, depth)
	case reflect.Map:
		if v.IsNil() {
			return append(b, 0xc0), nil
		}
		if v.Type().Key().Kind() != reflect.String {
			return b, noValue("the keys of an object are strings, not %v", v.Type().Key())
		}
		object := make(map[string]any, v.Len())
		for each := v.MapRange(); each.Next(); {
			object[each.Key().String()] = each.Value().Interface()
		}
		return appendObject(b, object, depth)
	case reflect.Struct:
		if len(fieldsOf(v.Type())) > 0 || v.NumField() == 0 {
			return appendStruct(b, v, depth)
		} // one that shows nothing, such as a big.Rat, would go out as an empty object
	}
	return b, noValue("%v is not a type of the language", v.Type())
}

func appendStruct(b []byte, v reflect.Value, depth int) ([]byte, *ValueError) {
	if depth >= depthMost {
		return b, noValue("it nests deeper than %d", depthMost)
	}
	var names []string
	var items []any
	for _, field := range fieldsOf(v.Type()) {
		item := v.FieldByIndex(field.index)
		if field.omitEmpty && item.IsZero() {
			continue
		}
		names, items = append(names, field.name), append(items, item.Interface())
	}
	b = appendMapHead(b, len(items))
	for n, item := range items {
		var err *ValueError
		if b, err = appendValue(appendString(b, names[n]), item, depth+1); err != nil {
			return b, under("."+names[n], err)
		}
	}
	return b, nil
}

// --- decoding ------------------------------------------------------------------------------------

var (
	errEndsEarly = errors.New("it ends too early")
	errTooDeep   = fmt.Errorf("it nests deeper than %d", frameDepth)
)

// decoder reads one msgpack value. What it returns holds nothing of b.
type decoder struct {
	b    []byte
	inID bool // within the id of a record, which holds no record
}

func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > len(d.b) {
		return nil, errEndsEarly
	}
	found := d.b[:n]
	d.b = d.b[n:]
	return found, nil
}

func (d *decoder) number(size int) (uint64, error) {
	data, err := d.take(size)
	if err != nil {
		return 0, err
	}
	var found uint64
	for _, one := range data {
		found = found<<8 | uint64(one)
	}
	return found, nil
}

func (d *decoder) length(size int) (int, error) {
	found, err := d.number(size)
	if err == nil && found > uint64(len(d.b)) {
		err = errEndsEarly
	}
	return int(found), err
}

func (d *decoder) value(depth int) (any, error) {
	head, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch h := head[0]; {
	case h < 0x80:
		return int64(h), nil
	case h < 0x90:
		return d.object(int(h&0x0f), depth)
	case h < 0xa0:
		return d.array(int(h&0x0f), depth)
	case h < 0xc0:
		return d.text(int(h & 0x1f))
	case h >= 0xe0:
		return int64(int8(h)), nil
	default:
		return d.longer(h, depth)
	}
}

func (d *decoder) longer(h byte, depth int) (any, error) {
	switch h {
	case 0xc0:
		return nil, nil
	case 0xc2, 0xc3:
		return h == 0xc3, nil
	case 0xc4, 0xc5, 0xc6:
		n, err := d.length(1 << (h - 0xc4))
		if err != nil {
			return nil, err
		}
		data, _ := d.take(n)
		return append([]byte{}, data...), nil
	case 0xc7, 0xc8, 0xc9:
		n, err := d.length(1 << (h - 0xc7))
		if err != nil {
			return nil, err
		}
		return d.extension(n)
	case 0xca:
		found, err := d.number(4)
		return float64(math.Float32frombits(uint32(found))), err
	case 0xcb:
		found, err := d.number(8)
		return math.Float64frombits(found), err
	case 0xcc, 0xcd, 0xce, 0xcf:
		found, err := d.number(1 << (h - 0xcc))
		if err == nil && found > math.MaxInt64 {
			err = errors.New("an integer has 64 bits with a sign")
		}
		return int64(found), err
	case 0xd0, 0xd1, 0xd2, 0xd3:
		size := 1 << (h - 0xd0)
		found, err := d.number(size)
		shift := 64 - 8*size
		return int64(found<<shift) >> shift, err
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return d.extension(1 << (h - 0xd4))
	case 0xd9, 0xda, 0xdb:
		n, err := d.length(1 << (h - 0xd9))
		if err != nil {
			return nil, err
		}
		return d.text(n)
	case 0xdc, 0xdd:
		n, err := d.length(2 << (h - 0xdc))
		if err != nil {
			return nil, err
		}
		return d.array(n, depth)
	case 0xde, 0xdf:
		n, err := d.length(2 << (h - 0xde))
		if err != nil {
			return nil, err
		}
		return d.object(n, depth)
	}
	return nil, fmt.Errorf("%#x begins no value", h)
}

func (d *decoder) text(n int) (string, error) {
	data, err := d.take(n)
	if err == nil && !utf8.Valid(data) {
		err = errors.New("a string is UTF-8")
	}
	return string(data), err
}

func (d *decoder) array(n, depth int) ([]any, error) {
	if depth >= frameDepth {
		return nil, errTooDeep
	}
	if n > len(d.b) {
		return nil, errEndsEarly
	}
	found := make([]any, 0, min(n, roomMost))
	for range n {
		item, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		found = append(found, item)
	}
	return found, nil
}

func (d *decoder) object(n, depth int) (map[string]any, error) {
	if depth >= frameDepth {
		return nil, errTooDeep
	}
	if 2*n > len(d.b) {
		return nil, errEndsEarly
	}
	found := make(map[string]any, min(n, roomMost))
	for range n {
		name, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		key, ok := name.(string)
		if !ok {
			return nil, errors.New("the keys of an object are strings")
		}
		if found[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (d *decoder) extension(n int) (any, error) {
	head, err := d.take(1)
	if err != nil {
		return nil, err
	}
	data, err := d.take(n)
	if err != nil {
		return nil, err
	}
	code := int8(head[0])
	switch {
	case code == extTimestamp:
		return readTime(data)
	case code == extDecimal:
		return ParseDecimal(string(data))
	case code == extDuration && n == 8:
		return Duration(binary.BigEndian.Uint64(data)), nil
	case code == extUUID && n == 16:
		return UUID(data), nil
	case code == extNone && n == 0:
		return None, nil
	case code == extRecord && !d.inID:
		return readRecord(data)
	}
	return nil, fmt.Errorf("an extension %d of %d bytes is not known to this version of the client", code, n)
}

func readTime(data []byte) (time.Time, error) {
	var seconds, nanos uint64
	switch len(data) {
	case 4:
		seconds = uint64(binary.BigEndian.Uint32(data))
	case 8:
		both := binary.BigEndian.Uint64(data)
		seconds, nanos = both&(1<<34-1), both>>34
	case 12:
		nanos, seconds = uint64(binary.BigEndian.Uint32(data)), binary.BigEndian.Uint64(data[4:])
	default:
		return time.Time{}, errors.New("a timestamp has 4, 8 or 12 bytes")
	}
	if nanos > 999_999_999 {
		return time.Time{}, errors.New("a timestamp has less than a second of nanoseconds")
	}
	return time.Unix(int64(seconds), int64(nanos)).UTC(), nil
}

func readRecord(data []byte) (RecordID, error) {
	inner := decoder{b: data, inID: true}
	value, err := inner.value(0)
	if err != nil {
		return RecordID{}, err
	}
	parts, ok := value.([]any)
	if !ok || len(parts) != 2 || len(inner.b) > 0 {
		return RecordID{}, errors.New("a record is a table and an id")
	}
	table, ok := parts[0].(string)
	if !ok || !isID(parts[1]) {
		return RecordID{}, errors.New("a record is a table and an id")
	}
	return RecordID{table, parts[1]}, nil
}

func isID(id any) bool {
	switch v := id.(type) {
	case string, int64, UUID:
		return true
	case []any:
		for _, item := range v {
			if !isID(item) {
				return false
			}
		}
		return true
	}
	return false
}
