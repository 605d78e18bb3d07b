# The whole ruleset as text, without the lines that name Flannel, written back.
# $1 is the variant, nft or legacy.
set -e
for iptables in iptables ip6tables; do
	"$iptables-$1-save" | grep -vi flannel | "$iptables-$1-restore"
done
