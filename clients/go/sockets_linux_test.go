package storeclient

import (
	"net"
	"syscall"
	"testing"
)

func TestC5Sockets(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	connected := later(func() (any, error) { return client.Connect(patient(t)) })
	one := node.greet()
	if found := <-connected; found.err != nil {
		t.Fatal(found)
	}
	raw, err := client.connectionTo(0).conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, option := range []struct{ level, name, least, most int }{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1, 1},
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 30, 30},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 10, 10},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3, 3},
		} {
			if found, err := syscall.GetsockoptInt(int(fd), option.level, option.name); err != nil || found < option.least || found > option.most {
				t.Error(option, found, err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	ends(client, one)
}
