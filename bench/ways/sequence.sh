# Four programs, each of which deletes the jump, empties the chain, and deletes it:
# what clean-up scripts do that do not know which of the four wrote the rules.
# Whatever is not there is an error, which is passed over.
for iptables in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
	remove() { # table chain comment from
		$iptables -w -t "$1" -D "$4" -m comment --comment "$3" -j "$2"
		$iptables -w -t "$1" -F "$2"
		$iptables -w -t "$1" -X "$2"
	}
	remove nat FLANNEL-POSTRTG 'flanneld masq' POSTROUTING
	remove filter FLANNEL-FWD 'flanneld forward' FORWARD
done 2>/dev/null
true
