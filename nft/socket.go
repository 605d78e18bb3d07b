package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// transport carries netlink messages to the kernel and its datagrams back. The
// tests replace the kernel behind it.
type transport interface {
	send(b []byte) error
	// receive fills b with the next datagram and returns its length. It waits
	// until ctx ends.
	receive(ctx context.Context, b []byte) (int, error)
	close()
}

// socket is a netlink socket in the network namespace of the thread that opened it.
type socket struct {
	fd      int
	timeout time.Duration // of one answer; 0 for one that may never come
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	// Extended acknowledgements carry the kernel's own words where it has any;
	// kernels that lack them lack the words only.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	return &socket{fd: fd, timeout: answerTimeout}, nil
}

// sendRoom is what the kernel adds to a message's length when it holds it
// against the send buffer, with a wide margin.
const sendRoom = 64 << 10

// send sends everything in one sendmsg: the kernel applies a batch only if all of
// it comes in one datagram, which has to fit into the send buffer. The kernel does
// the work before sendmsg returns.
func (s *socket) send(b []byte) error {
	if len(b) > sendRoom {
		size := 2*len(b) + sendRoom
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
			// Only the first user namespace's root may pass net.core.wmem_max.
			_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
		}
	}
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		switch err {
		case unix.EINTR:
			continue
		case unix.EMSGSIZE:
			return fmt.Errorf("send a batch of %d bytes: %w", len(b), err)
		}
		return os.NewSyscallError("sendmsg", err)
	}
}

// pollInterval is how late an ended context may be noticed. It does not slow
// anything down: answers are queued by the time that sendmsg returns, so that
// waiting is the exception.
const pollInterval = 50 * time.Millisecond

// answerTimeout is how long the kernel may take for one answer. It answers within
// sendmsg, but may have to load a module or wait for another writer there.
const answerTimeout = 20 * time.Second

func (s *socket) receive(ctx context.Context, b []byte) (int, error) {
	for waited := time.Duration(0); ; waited += pollInterval {
		n, _, err := unix.Recvfrom(s.fd, b, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case err == nil && n > len(b):
			return 0, fmt.Errorf("receive a datagram of %d bytes: %w", n, errMalformed)
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, os.NewSyscallError("recvmsg", err)
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if waited >= s.timeout && s.timeout > 0 {
			return 0, fmt.Errorf("no answer within %v: %w", s.timeout, context.DeadlineExceeded)
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(pollInterval.Milliseconds())); err != nil && err != unix.EINTR {
			return 0, os.NewSyscallError("poll", err)
		}
	}
}

// close closes the socket aside: the kernel makes the closing of a netlink socket of
// netfilter wait until it has freed what earlier transactions deleted. On a busy node
// that takes tens of milliseconds, in which the generation that was just read is over.
func (s *socket) close() {
	go func() {
		_ = unix.Close(s.fd) // nothing is written behind a netlink socket
	}()
}
