package storeclient

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

// frameMost is the longest frame that either side takes.
const frameMost = 16 << 20

type kind int64

const (
	kindHello   kind = 1
	kindAuth    kind = 2
	kindRun     kind = 3
	kindCancel  kind = 4
	kindPing    kind = 5
	kindBye     kind = 6
	kindKV      kind = 7
	kindTopic   kind = 8
	kindWatch   kind = 9
	kindUnwatch kind = 10
	kindVault   kind = 11
	kindWelcome kind = 32
	kindRefused kind = 33
	kindAnswer  kind = 34
	kindError   kind = 35
	kindPong    kind = 36
	kindValue   kind = 37
	kindChange  kind = 38
	kindPart    kind = 39
)

var kindNames = map[kind]string{
	kindHello: "HELLO", kindAuth: "AUTH", kindRun: "RUN", kindCancel: "CANCEL", kindPing: "PING",
	kindBye: "BYE", kindKV: "KV", kindTopic: "TOPIC", kindWatch: "WATCH", kindUnwatch: "UNWATCH",
	kindVault: "VAULT", kindWelcome: "WELCOME", kindRefused: "REFUSED", kindAnswer: "ANSWER",
	kindError: "ERROR", kindPong: "PONG", kindValue: "VALUE", kindChange: "CHANGE", kindPart: "PART",
}

func (k kind) String() string { return kindNames[k] }

// field is one of a body. Those of a body are sent in their order.
type field struct {
	name  string
	value any
}

// appendBody appends a body; nil is nil.
func appendBody(b []byte, body []field) ([]byte, error) {
	if body == nil {
		return append(b, 0xc0), nil
	}
	b = appendMapHead(b, len(body))
	for _, one := range body {
		var err error
		if b, err = appendField(appendString(b, one.name), one); err != nil {
			return b, err
		}
	}
	return b, nil
}

// appendField appends what a field holds: a value, or many of them.
func appendField(b []byte, one field) ([]byte, error) {
	switch held := one.value.(type) {
	case Params:
		if one.name != "params" {
			break
		}
		b = appendMapHead(b, len(held))
		for name, value := range held {
			if !utf8.ValidString(name) {
				return b, noValue("the name of a parameter is UTF-8, not %q", name)
			}
			var err *ValueError
			if b, err = appendGiven(appendString(b, name), value); err != nil {
				return b, under("$"+name, err)
			}
		}
		return b, nil
	case []any:
		if one.name != "values" {
			break
		}
		b = appendArrayHead(b, len(held))
		for n, value := range held {
			var err *ValueError
			if b, err = appendGiven(b, value); err != nil {
				return b, under(fmt.Sprintf("values[%d]", n), err)
			}
		}
		return b, nil
	}
	b, err := appendGiven(b, one.value)
	if err != nil {
		return b, under(one.name, err)
	}
	return b, nil
}

// appendFrame appends the frame of a message whose body is packed.
func appendFrame(b []byte, k kind, id int64, body []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendInt(appendInt(appendArrayHead(b, 3), int64(k)), id)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// message is one of the node's.
type message struct {
	kind kind
	id   int64
	body Object
	size int
}

// readMessage reads one frame. buf is used again for the next.
func readMessage(r *bufio.Reader, buf *[]byte) (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > frameMost {
		switch {
		case string(head[:]) == "HTTP":
			return message{}, broken("HTTP is spoken there: the wire protocol has a port of its own, that of the node's --serve")
		case head[0] == 0x15 && head[1] == 0x03: // an alert
			return message{}, broken("TLS is spoken there: connect with it")
		}
		return message{}, broken("the node sent a frame of %d bytes", size)
	}
	// What is only claimed takes no memory: the buffer grows with what has come.
	frame := (*buf)[:0]
	for len(frame) < size {
		step := min(size-len(frame), max(len(frame), 64<<10))
		start := len(frame)
		if cap(frame) < start+step {
			frame = append(frame, make([]byte, step)...)
		} else {
			frame = frame[:start+step]
		}
		if _, err := io.ReadFull(r, frame[start:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return message{}, err
		}
	}
	if cap(frame) <= 1<<20 {
		*buf = frame
	} else {
		*buf = nil
	}
	return readFrame(frame)
}

func readFrame(frame []byte) (message, error) {
	d := decoder{b: frame}
	value, err := d.value(0)
	if err == nil && len(d.b) > 0 {
		err = fmt.Errorf("%d bytes stand behind it", len(d.b))
	}
	if err != nil {
		return message{}, &failure{kind: ErrProtocolBroken, said: "the node sent what is no message", cause: err}
	}
	parts, _ := value.([]any)
	if len(parts) != 3 {
		return message{}, broken("the node sent what is no message")
	}
	number, isKind := parts[0].(int64)
	id, isID := parts[1].(int64)
	body, isBody := parts[2].(Object)
	if !isKind || !isID || !(isBody || parts[2] == nil) {
		return message{}, broken("the node sent what is no message")
	}
	if _, ok := kindNames[kind(number)]; !ok || (number < int64(kindWelcome) && kind(number) != kindBye) {
		return message{}, broken("the node sent a message of kind %d", number)
	}
	return message{kind(number), id, body, len(frame)}, nil
}
