# bash completion for unflannel; source it, or put it into
# /usr/share/bash-completion/completions/unflannel

_unflannel() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=
	if ((COMP_CWORD == 1)); then
		words='check clean version help'
	else
		case $previous in
		--backend) words='nft legacy nft,legacy' ;;
		--family) words='ip ip6 ip,ip6' ;;
		--output | --log-format) words='text json' ;;
		--lock-wait) words='30s 2m' ;;
		--settle) words='12s' ;;
		--timeout) words='1m 5m' ;;
		--host-root | --netns | --save | --subnet-env | --termination-log)
			mapfile -t COMPREPLY < <(compgen -f -- "$word")
			compopt -o filenames 2>/dev/null
			return
			;;
		--network) return ;;
		help) words='check clean' ;;
		*)
			case ${COMP_WORDS[1]} in
			check) words='--backend --family --host-root --log-format --netns --network --output --subnet-env --termination-log --timeout -v --help' ;;
			clean) words='--backend --dry-run --family --flush-conntrack --host-root --lock-wait --log-format --netns --network --output --save --settle --subnet-env --termination-log --timeout -v --help' ;;
			esac
			;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _unflannel unflannel
