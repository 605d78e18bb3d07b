# nft names rules by handles: list the chain with the jump, take its handle from the
# text, delete the jump, empty the chain and delete it. Only nf_tables, of course.
set -e
remove() { # family table chain from
	nft -a list chain "$1" "$2" "$4" |
		awk -v jump="jump $3" 'index($0, jump) { print $NF }' |
		while read -r handle; do
			nft delete rule "$1" "$2" "$4" handle "$handle"
		done
	nft flush chain "$1" "$2" "$3"
	nft delete chain "$1" "$2" "$3"
}
for family in ip ip6; do
	remove $family nat FLANNEL-POSTRTG POSTROUTING
	remove $family filter FLANNEL-FWD FORWARD
done
