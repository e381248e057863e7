package storeclient

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func packed(t *testing.T, value any) []byte {
	t.Helper()
	b, err := appendValue(nil, value, 0)
	if err != nil {
		t.Fatalf("%v: %v", value, err)
	}
	return b
}

func unpacked(b []byte) (any, error) {
	d := decoder{b: b}
	value, err := d.value(0)
	if err == nil && len(d.b) > 0 {
		err = errors.New("bytes stand behind it")
	}
	return value, err
}

func TestC53VectorsAreArraysOfFloats(t *testing.T) {
	type vector []float32
	for _, given := range []any{[]float32{0.5, 1}, []float64{0.5, 1}, vector{0.5, 1}} {
		if found, err := unpacked(packed(t, given)); err != nil || !reflect.DeepEqual(found, []any{0.5, 1.0}) {
			t.Errorf("%T: %v %v", given, found, err)
		}
	}
	if found, err := unpacked(packed(t, []float32(nil))); err != nil || found != nil {
		t.Errorf("%v %v", found, err)
	}
	_, err := appendValue(nil, Object{"at": []float32{1, float32(math.Inf(1))}}, 0)
	if err == nil || err.Path != ".at[1]" {
		t.Errorf("%v", err)
	}
	nested := any([]float64{1})
	for range depthMost {
		nested = []any{nested}
	}
	if _, err := appendValue(nil, nested, 0); err == nil {
		t.Error("it nests too deep")
	}
}

func TestC30ValuesComeBackAsTheyWent(t *testing.T) {
	at := time.Date(1931, 1, 2, 3, 4, 5, 7000, time.UTC)
	for _, value := range []any{
		nil, true, false, int64(0), int64(127), int64(128), int64(255), int64(256), int64(65536),
		int64(1) << 32, int64(math.MaxInt64), int64(-1), int64(-32), int64(-33), int64(-128), int64(-129),
		int64(-32769), int64(math.MinInt32) - 1, int64(math.MinInt64), 1.0, 0.1, math.Copysign(0, -1), math.MaxFloat64,
		"", "naïve ☃", strings.Repeat("x", 31), strings.Repeat("x", 32), strings.Repeat("x", 256), strings.Repeat("x", 70000),
		[]byte{}, bytes.Repeat([]byte{7}, 300), bytes.Repeat([]byte{7}, 70000), None,
		MustDecimal("12.30"), MustDecimal("-0.00"), MustDecimal("1E+3"),
		at, time.Unix(1, 0).UTC(), time.Unix(1<<33, 5000).UTC(), time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
		Duration(-3*24*int64(Hour) + 7), Duration(math.MaxInt64), Duration(math.MinInt64),
		UUID{1, 2, 3}, NewRecordID("person", "ana"), NewRecordID("person", []any{"a", 1, UUID{9}}),
		[]any{}, []any{int64(1), []any{2.5, "x"}}, Object{}, Object{"b c": Object{"d": []any{}}},
	} {
		found, err := unpacked(packed(t, value))
		if err != nil || !reflect.DeepEqual(found, value) {
			t.Errorf("%#v came back as %#v, %v", value, found, err)
		}
	}
	long := make([]any, 1<<16)
	wide := Object{}
	for n := range long {
		long[n], wide[strconv.Itoa(n)] = int64(n), int64(n)
	}
	for _, value := range []any{long, wide, long[:17]} {
		if found, err := unpacked(packed(t, value)); err != nil || !reflect.DeepEqual(found, value) {
			t.Errorf("a long %T came back as another, %v", value, err)
		}
	}
}

func TestBytesOfTheProtocolPage(t *testing.T) {
	body, err := appendBody(nil, []field{{"script", "RETURN $n"}, {"params", Params{"n": MustDecimal("12.30")}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "00000027930301" + "82" + "a6736372697074" + "a952455455524e20246e" + "a6706172616d73" + "81a16ec7050131322e3330"
	if found := hex.EncodeToString(appendFrame(nil, kindRun, 1, body)); found != want {
		t.Errorf("RUN is sent as %s, not %s", found, want)
	}
}

type item struct {
	ID      RecordID
	Name    string
	Price   *Decimal
	Tags    []string      `store:"labels,omitempty"`
	For     time.Duration `store:",omitempty"`
	hidden  int
	Skipped int `store:"-"`
}

func TestStructsAreObjects(t *testing.T) {
	price := MustDecimal("1.50")
	given := item{ID: NewRecordID("item", 1), Name: "lamp", Price: &price, For: time.Hour, hidden: 1, Skipped: 2}
	found, err := unpacked(packed(t, given))
	want := Object{"id": given.ID, "name": "lamp", "price": price, "for": Hour}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Fatalf("%#v, %v", found, err)
	}
	given.hidden, given.Skipped = 0, 0
	var back item
	if err := Decode(found, &back); err != nil || !reflect.DeepEqual(back, given) {
		t.Errorf("%#v, %v", back, err)
	}
	for name, want := range map[string]string{"ID": "id", "CreatedAt": "createdAt", "URLPath": "urlPath", "N": "n"} {
		if found := lowerFirst(name); found != want {
			t.Errorf("%s is named %s", name, found)
		}
	}
	type word string
	type inner struct{ A, B int8 }
	mixed := struct {
		inner
		Word word
		Map  map[word][2]uint16
	}{inner{1, -2}, "w", map[word][2]uint16{"x": {3, 4}}}
	again := mixed
	again.Map, again.A = nil, 0
	found, err = unpacked(packed(t, mixed))
	if err == nil {
		err = Decode(found, &again)
	}
	if err != nil || !reflect.DeepEqual(again, mixed) {
		t.Errorf("%#v, %v, by way of %v", again, err, found)
	}
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	for _, one := range []struct {
		value any
		into  any
		want  string
	}{
		{Object{"id": NewRecordID("item", 1), "name": int64(7)}, new(item), "name: the int 7 does not fit string"},
		{[]any{int64(1), int64(300)}, new([]int8), "[1]: the int 300 does not fit int8"},
		{int64(-1), new(uint), "the int -1 does not fit uint"},
		{1.0, new(int), "a float does not fit int"},
		{int64(1)<<53 + 1, new(float64), "does not fit float64"},
		{nil, new(int), "null does not fit int"},
		{None, new(string), "NONE does not fit string"},
		{Duration(math.MaxInt64), new(time.Duration), "too long"},
		{Object{"at": "x"}, &struct{ At time.Time }{}, "at: a string does not fit time.Time"},
	} {
		err := Decode(one.value, one.into)
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%v into %T: %v, not %q", one.value, one.into, err, one.want)
		}
	}
	var price *int
	if err := Decode(None, &price); err != nil || price != nil {
		t.Errorf("%v, %v", price, err)
	}
	var number float64
	if err := Decode(int64(3), &number); err != nil || number != 3 {
		t.Errorf("%v, %v", number, err)
	}
}

func TestC31WhatIsNoValueIsNamed(t *testing.T) {
	deep := any(Object{})
	for range depthMost {
		deep = Object{"a": deep}
	}
	for _, one := range []struct {
		params Params
		want   string
	}{
		{Params{"item": Object{"sizes": []any{int64(1), int64(2), math.NaN()}}}, "$item.sizes[2]: NaN"},
		{Params{"n": uint64(math.MaxUint64)}, "$n: 18446744073709551615 is beyond 64 bits"},
		{Params{"f": func() {}}, "$f: func() is not a type of the language"},
		{Params{"s": "\xff"}, "$s: a string is UTF-8"},
		{Params{"m": map[int]int{1: 2}}, "$m: the keys of an object are strings"},
		{Params{"r": RecordID{"t", 1.5}}, "$r: an id of a record is"},
		{Params{"at": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "$at: "},
		{Params{"deep": deep}, "nests deeper than 64"},
		{Params{"rat": big.NewRat(1, 3)}, "$rat: big.Rat is not a type of the language"},
	} {
		_, err := appendBody(nil, []field{{"script", ""}, {"params", one.params}})
		var wrong *ValueError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%v, not %q", err, one.want)
		}
	}
	if _, err := appendBody(nil, []field{{"value", math.Inf(1)}}); err == nil || !strings.Contains(err.Error(), "value: +Inf") {
		t.Error(err)
	}
}

func TestC8WhatIsNoMessageIsRefused(t *testing.T) {
	for _, one := range []string{
		"", "93", "9322", "c1", "932201", "93220181", "93220181a16101ff", "930101c0", "936301c0", "93a001c0", "9322a0c0",
		"92 22 01", "93 22 01 01", "93 22 01 81 01 01", "93 22 01 81 a1 61 cf ffffffffffffffff",
		"93 22 01 81 a1 61 dd ffffffff", "93 22 01 81 a1 61 df ffffffff", "93 22 01 81 a1 61 db ffffffff",
		"93 22 01 81 a1 61 c9 ffffffff", "93 22 01 81 a1 61 d4 07 00", "93 22 01 81 a1 61 d4 05 00",
		"93 22 01 81 a1 61 a1 ff", "93 22 01 81 a1 61 c7 03 04 92 a1 74", "93 22 01 81 a1 61 c7 04 04 92 a1 74 c0",
		"93 22 01 81 a1 61 c7 07 04 92 a1 74 d4 05 00", "93 22 01 81 a1 61 d5 01 3131ff", "93 22 01 81 a1 61 d5 01 2e2e",
		"93 22 01 " + strings.Repeat("81 a1 61 ", frameDepth-1) + "80",
		"93 22 01 81 a1 61 " + strings.Repeat("91 ", 100000),
	} {
		frame, err := hex.DecodeString(strings.ReplaceAll(one, " ", ""))
		if err != nil {
			t.Fatal(one, err)
		}
		if _, err := readFrame(frame); !errors.Is(err, ErrProtocolBroken) {
			t.Errorf("%.40s is taken for a message: %v", one, err)
		}
	}
}

// A row of as many levels as a value may have stands in five more of a frame.
func TestC8ValuesNestAsDeepAsTheyMay(t *testing.T) {
	row := Object{}
	for range depthMost - 1 {
		row = Object{"a": row}
	}
	body, err := appendBody(nil, []field{{"params", Params{"row": row, "rows": []Object{row}}}, {"values", []any{row}}, {"value", row}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(appendFrame(nil, kindAnswer, 1, body)[4:]); err != nil {
		t.Fatal(err)
	}
	deepest, err := hex.DecodeString("932201" + strings.Repeat("81a161", frameDepth-2) + "80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(deepest); err != nil {
		t.Fatal(err)
	}
}

func FuzzFrames(f *testing.F) {
	whole, _ := appendBody(nil, []field{{"v", []any{None, MustDecimal("1.5"), NewRecordID("t", []any{1}), time.Unix(1, 1).UTC()}}})
	f.Add(appendFrame(nil, kindValue, 1, whole)[4:])
	f.Fuzz(func(t *testing.T, frame []byte) {
		found, err := readFrame(frame)
		if err != nil {
			return
		}
		again, wrong := appendValue(nil, any(found.body), 1)
		if wrong != nil { // floats of the node are numbers; what is not is refused on the way out
			return
		}
		if back, err := unpacked(again); err != nil || !reflect.DeepEqual(back, any(found.body)) && found.body != nil {
			t.Fatalf("%#v came back as %#v, %v", found.body, back, err)
		}
	})
}

func TestTexts(t *testing.T) {
	for _, one := range []struct {
		found, want string
	}{
		{NewRecordID("item", 1).String(), "item:1"},
		{NewRecordID("item", "ana").String(), "item:ana"},
		{NewRecordID("item", "any `text`").String(), "item:`any \\`text\\``"},
		{NewRecordID("item", []any{"a'b", 1, []any{UUID{}}}).String(), `item:['a\'b', 1, [u'00000000-0000-0000-0000-000000000000']]`},
		{(90 * Minute).String(), "1h30m"}, {Duration(0).String(), "0s"}, {(-7 * Microsecond).String(), "-7us"},
		{Duration(math.MinInt64).String()[:2], "-1"},
		{MustDecimal("12.30").Rat().FloatString(2), "12.30"},
		{Decimal{}.String(), "0"},
		{renamed("SET a = $n, b = '$n', c = $nn -- $n\n, d = $n", map[string]string{"n": "n__1"}), "SET a = $n__1, b = '$n', c = $nn -- $n\n, d = $n__1"},
	} {
		if one.found != one.want {
			t.Errorf("%s, not %s", one.found, one.want)
		}
	}
	for _, text := range []string{"", ".", "1e", "x", strings.Repeat("1", 35), "1E99999", "--1"} {
		if _, err := ParseDecimal(text); err == nil {
			t.Errorf("%q is taken for a decimal", text)
		}
	}
	for want, given := range map[string][2]int64{"12.30": {1230, 2}, "-0.07": {-7, 2}, "7E2": {7, -2}, "7E0": {7, 0}} {
		if found, err := NewDecimal(given[0], int(given[1])); err != nil || found != MustDecimal(want) {
			t.Error(want, found, err)
		}
	}
	found, err := ParseUUID("018f0000-0000-7000-8000-000000000001")
	if err != nil || found.String() != "018f0000-0000-7000-8000-000000000001" {
		t.Error(found, err)
	}
}

func TestC32NamesAreQuoted(t *testing.T) {
	if found, err := QuoteName("a-b"); err != nil || found != "`a-b`" {
		t.Error(found, err)
	}
	for _, name := range []string{"", "a b", "1a", "a`", strings.Repeat("a", 65), "a\n"} {
		if found, err := QuoteName(name); err == nil {
			t.Errorf("%q is quoted, as %s", name, found)
		}
	}
}

func TestC2Addresses(t *testing.T) {
	for address, want := range map[string]string{
		"": "127.0.0.1:8001", ":9": "127.0.0.1:9", "h": "h:8001", "h:9": "h:9", "[::1]": "::1:8001", "[::1]:9": "::1:9",
	} {
		host, port, err := splitAddress(address)
		if err != nil || host+":"+port != want {
			t.Errorf("%q is %s:%s, %v", address, host, port, err)
		}
	}
	for _, address := range []string{"::1", "h:x", "h:0", "h:65536", "[::1", "[::1]9"} {
		if _, _, err := splitAddress(address); err == nil {
			t.Errorf("%q is taken for an address", address)
		}
	}
	if _, err := Open("a,b", WithToken("t")); err == nil {
		t.Error("a token is taken for several nodes")
	}
	many := make([]string, nodesMost+1)
	for n := range many {
		many[n] = fmt.Sprint("h", n)
	}
	if _, err := Open(strings.Join(many, ",")); err == nil {
		t.Error("more nodes are taken than a client knows")
	}
}

func TestC34PagesOfASelect(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{"SELECT id FROM item", "SELECT id FROM item\n ORDER BY id LIMIT $storeclient_rows"},
		{"SELECT id, 'ORDER' FROM item WHERE a = 1 -- LIMIT", "SELECT id, 'ORDER' FROM item \n WHERE ( a = 1 -- LIMIT\n) ORDER BY id LIMIT $storeclient_rows"},
		{"SELECT * FROM item WHERE order = 1", "SELECT * FROM item \n WHERE ( order = 1\n) ORDER BY id LIMIT $storeclient_rows"},
	} {
		pages, err := newPages(one.text, nil, 0)
		if err != nil {
			t.Errorf("%s: %v", one.text, err)
		} else if found, _ := pages.next(); found != one.want {
			t.Errorf("%q, not %q", found, one.want)
		}
	}
	for _, text := range []string{
		"SELECT VALUE a FROM t", "SELECT * FROM ONLY t:1", "SELECT * FROM t ORDER BY a", "SELECT * FROM t LIMIT 1",
		"SELECT * FROM t; SELECT * FROM u", "UPDATE t", "SELECT 1", "SELECT * FROM t WHERE a GROUP BY b",
	} {
		if _, err := newPages(text, nil, 0); err == nil {
			t.Errorf("%q is read page by page", text)
		}
	}
}
