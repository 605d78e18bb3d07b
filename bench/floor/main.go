// Command floor is the least that a Go program can do to remove Flannel's leftovers
// from nf_tables: it sends the messages that unflannel clean sends, to nf_tables
// alone, and takes nothing from the answers but the handles. It decodes and reports
// nothing, believes that all references are where Flannel writes them, and gives up
// at the first error. It is there to be compared with and fit for nothing else.
package main

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

const (
	subsystem  = 10 // NFNL_SUBSYS_NFTABLES
	getTable   = 1
	getChain   = 4
	delChain   = 5
	getRule    = 7
	delRule    = 8
	getGen     = 16
	batchBegin = 0x10
	batchEnd   = 0x11

	attrTable  = 1 // the same of tables, chains and rules
	ruleChain  = 2
	ruleHandle = 3
	chainName  = 3
	chainH     = 2
	batchGen   = 1
	genID      = 1
)

const (
	request = syscall.NLM_F_REQUEST
	dump    = syscall.NLM_F_REQUEST | syscall.NLM_F_DUMP
)

var (
	fd     int
	kernel = &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}
	seq    uint32
	out    []byte
	in     = make([]byte, 32<<10)
	native = binary.NativeEndian
	big    = binary.BigEndian
)

func main() {
	var err error
	if fd, err = syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_NETFILTER); err != nil {
		fail("socket")
	}
	if syscall.Bind(fd, kernel) != nil {
		fail("bind")
	}
	gen, rules, chains := look()
	if len(chains) == 0 {
		fail("nothing to remove")
	}
	commit(gen, rules, chains)
	if _, _, chains = look(); len(chains) > 0 {
		fail("something is left")
	}
}

func fail(what string) {
	syscall.Write(2, []byte("floor: "+what+"\n"))
	syscall.Exit(1)
}

// object is a rule or chain that is to go.
type object struct {
	family      byte
	table, name string // of the chain
	handle      []byte
}

// look asks all that unflannel asks, and returns the jumps and the chains.
func look() (gen []byte, rules, chains []object) {
	gen = generation()
	for _, family := range []byte{syscall.AF_INET, syscall.AF_INET6} {
		for _, t := range []struct {
			name   string
			chains []string // where the jump is, Flannel's, and an old one of Flannel's
		}{
			{"nat", []string{"POSTROUTING", "FLANNEL-POSTRTG", "FLANNEL"}},
			{"filter", []string{"FORWARD", "FLANNEL-FWD"}},
			{map[byte]string{syscall.AF_INET: "flannel-ipv4", syscall.AF_INET6: "flannel-ipv6"}[family], nil},
		} {
			begin(subsystem<<8|getTable, request, family)
			text(attrTable, t.name)
			if !ask(nil) {
				continue
			}
			var there []string
			for i, chain := range t.chains {
				begin(subsystem<<8|getChain, request, family)
				text(attrTable, t.name)
				text(chainName, chain)
				if ask(func(b []byte) {
					if i > 0 {
						chains = append(chains, object{family, t.name, chain, attr(b, chainH)})
					}
				}) {
					there = append(there, chain)
				}
			}
			for _, chain := range there {
				begin(subsystem<<8|getRule, dump, family)
				text(attrTable, t.name)
				text(ruleChain, chain)
				ask(func(b []byte) {
					if chain == t.chains[0] && bytes.Contains(b, []byte(t.chains[1]+"\x00")) {
						rules = append(rules, object{family, t.name, chain, attr(b, ruleHandle)})
					}
				})
			}
		}
	}
	if !bytes.Equal(gen, generation()) {
		fail("somebody else wrote")
	}
	return gen, rules, chains
}

func generation() (id []byte) {
	begin(subsystem<<8|getGen, request, 0)
	ask(func(b []byte) { id = attr(b, genID) })
	return id
}

// commit sends the one batch and waits for its acknowledgement.
func commit(gen []byte, rules, chains []object) {
	var batch []byte
	begin(batchBegin, request, 0)
	big.PutUint16(out[18:], subsystem)
	bin(batchGen, gen)
	batch = append(batch, end()...)
	for _, r := range rules {
		begin(subsystem<<8|delRule, request, r.family)
		text(attrTable, r.table)
		text(ruleChain, r.name)
		bin(ruleHandle, r.handle)
		batch = append(batch, end()...)
	}
	for _, c := range chains {
		begin(subsystem<<8|delRule, request, c.family)
		text(attrTable, c.table)
		text(ruleChain, c.name)
		batch = append(batch, end()...)
	}
	for i, c := range chains {
		flags := uint16(request)
		if i == len(chains)-1 {
			flags |= syscall.NLM_F_ACK
		}
		begin(subsystem<<8|delChain, flags, c.family)
		text(attrTable, c.table)
		bin(chainH, c.handle)
		batch = append(batch, end()...)
	}
	begin(batchEnd, request, 0)
	big.PutUint16(out[18:], subsystem)
	batch = append(batch, end()...)
	if syscall.Sendto(fd, batch, 0, kernel) != nil {
		fail("send the batch")
	}
	n, _, err := syscall.Recvfrom(fd, in, 0)
	if err != nil || n < 20 || native.Uint32(in[16:]) != 0 {
		fail("the batch was refused")
	}
}

// ask sends the message and hands the attributes of each answer on. It reports
// whether there is what was asked for.
func ask(f func([]byte)) bool {
	dumping := native.Uint16(out[6:])&syscall.NLM_F_DUMP == syscall.NLM_F_DUMP
	if syscall.Sendto(fd, end(), 0, kernel) != nil {
		fail("send")
	}
	for {
		n, _, err := syscall.Recvfrom(fd, in, 0)
		if err != nil {
			fail("receive")
		}
		for b := in[:n]; len(b) >= 16; {
			length := int(native.Uint32(b))
			switch native.Uint16(b[4:]) {
			case syscall.NLMSG_DONE:
				return true
			case syscall.NLMSG_ERROR:
				if syscall.Errno(-int32(native.Uint32(b[16:]))) != syscall.ENOENT {
					fail("an error as answer")
				}
				return false
			}
			if f != nil {
				f(b[20:length])
			}
			if !dumping {
				return true
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// attr returns a copy of an attribute's data.
func attr(b []byte, typ uint16) []byte {
	for len(b) >= 4 {
		length := int(native.Uint16(b))
		if native.Uint16(b[2:])&0x3fff == typ {
			return bytes.Clone(b[4:length])
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}

func begin(typ, flags uint16, family byte) {
	out = append(out[:0], make([]byte, 20)...)
	native.PutUint16(out[4:], typ)
	native.PutUint16(out[6:], flags)
	out[16] = family
}

func end() []byte {
	seq++
	native.PutUint32(out, uint32(len(out)))
	native.PutUint32(out[8:], seq)
	return out
}

func text(typ uint16, s string) { bin(typ, append([]byte(s), 0)) }

func bin(typ uint16, data []byte) {
	out = native.AppendUint16(out, uint16(4+len(data)))
	out = native.AppendUint16(out, typ)
	out = append(out, data...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
}
