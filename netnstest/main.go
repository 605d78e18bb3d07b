package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inUserNS tells a program that it is the one that [AsRoot] started in a user
// namespace: it has to prepare /run, and must not start another.
const inUserNS = "NETNSTEST_IN_USERNS"

// Main runs a package's tests as [AsRoot] says and exits; TestMain calls it.
func Main(m interface{ Run() int }) {
	AsRoot()
	os.Exit(m.Run())
}

// AsRoot returns in a process that may make network namespaces; a program calls
// it first of all. Root goes on as it is. Anybody else's program is run again in
// a new user namespace, as its root, with a network and a mount namespace that
// belong to it and an empty /run: there iptables makes its lock and ip its named
// namespaces. The first process then exits as that one does. Where the kernel
// refuses, AsRoot says so and exits 1.
func AsRoot() {
	switch {
	case os.Getenv(inUserNS) != "":
		// Programs that this one starts, itself among them, must not take
		// themselves for it.
		os.Unsetenv(inUserNS)
		if err := prepareUserNS(); err != nil {
			refuse(err)
		}
	case os.Geteuid() != 0:
		os.Exit(reexec())
	}
}

// reexec runs the program again in a user namespace and returns its exit code.
func reexec() int {
	// The child dies with the thread that started it, which therefore has to stay.
	runtime.LockOSThread()

	// Who ends the program ends this process, the only one he knows: go test sends
	// SIGQUIT when tests take too long, and wants the stacks of the child.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)

	cmd := &exec.Cmd{
		Path:   "/proc/self/exe", // the binary's own path may be closed to this user
		Args:   os.Args,
		Env:    append(os.Environ(), inUserNS+"=1"),
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			Pdeathsig:   unix.SIGKILL,
		},
	}
	if err := cmd.Start(); err != nil {
		refuse(err)
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "netnstest: run in a user namespace:", err)
		return 1
	}
	return 0
}

// prepareUserNS covers /run, whose files belong to the machine's root.
func prepareUserNS() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("user %d is not root in the new user namespace", uid)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /run: %w", err)
	}
	return os.Mkdir("/run/netns", 0o755)
}

// refuse ends the process with what its user can do.
func refuse(err error) {
	fmt.Fprintf(os.Stderr, `netnstest: cannot become root of a user namespace: %v
This program makes network namespaces. That takes root, or a kernel that lets
other users make user namespaces. If this one does not, see these settings:
	user.max_user_namespaces                      above 0
	kernel.unprivileged_userns_clone              1, where it exists (Debian)
	kernel.apparmor_restrict_unprivileged_userns  0, where it exists (Ubuntu)
In a container, its seccomp profile may forbid them too.
`, err)
	os.Exit(1)
}
