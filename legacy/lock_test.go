package legacy

import (
	"strings"
	"testing"
)

func TestLockPrivate(t *testing.T) {
	t.Parallel()
	const (
		overlay = "500 400 0:50 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d\n"
		fuse    = "500 400 0:50 / / rw,nodev - fuse.fuse-overlayfs fuse-overlayfs rw\n"
		disk    = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
		proc    = "501 500 0:51 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n"
		secrets = "502 500 0:52 / /run/secrets/kubernetes.io/serviceaccount ro,relatime - tmpfs tmpfs rw\n"
		lock    = "503 500 0:24 /xtables.lock /run/xtables.lock rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=1000k\n"
		run     = "504 500 0:24 / /run rw,nosuid,nodev - tmpfs tmpfs rw,size=1000k\n"
		varRun  = "505 500 0:24 / /var/run rw,nosuid,nodev - tmpfs tmpfs rw\n"
	)
	for name, test := range map[string]struct {
		mountinfo string
		private   bool
	}{
		"container":                {overlay + proc, true},
		"container with a secret":  {overlay + proc + secrets, true},
		"fuse":                     {fuse + proc, true},
		"container with the lock":  {overlay + proc + lock, false},
		"container with run":       {overlay + run + proc, false},
		"container with var run":   {overlay + varRun, false},
		"machine":                  {disk + proc + run, false},
		"machine without own run":  {disk + proc, false},
		"overlay over the machine": {disk + overlay, true},
		"machine over overlay":     {overlay + disk, false},
		"nothing":                  {"", false},
	} {
		private, err := lockPrivate(strings.NewReader(test.mountinfo))
		if err != nil || private != test.private {
			t.Errorf("%s: %t, %v", name, private, err)
		}
	}
	for _, text := range []string{"x\n", "500 400 0:50 / / rw overlay\n", overlay + " - \n"} {
		if _, err := lockPrivate(strings.NewReader(text)); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}

func TestLockPrivateHere(t *testing.T) {
	if _, err := LockPrivate(); err != nil {
		t.Error(err)
	}
	t.Setenv("XTABLES_LOCKFILE", "/some/lock")
	if private, err := LockPrivate(); err != nil || private {
		t.Errorf("%t, %v", private, err)
	}
}
