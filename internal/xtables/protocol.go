package xtables

import "strconv"

// Protocol returns iptables-save's name for an IP protocol, or its number. The
// names are those that iptables has built in. Which others it writes depends on
// the machine's /etc/protocols; they stay numbers here.
func Protocol(n uint8) string {
	switch n {
	case 1:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 50:
		return "esp"
	case 51:
		return "ah"
	case 58:
		return "ipv6-icmp"
	case 132:
		return "sctp"
	case 135:
		return "ipv6-mh"
	case 136:
		return "udplite"
	}
	return strconv.Itoa(int(n))
}
