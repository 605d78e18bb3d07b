// Package deploy tests the manifests: that kustomize builds them, that the Kubernetes
// API knows every field, and that unflannel knows every argument.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build builds an overlay and decodes its only object strictly: a field that the API
// does not know is an error.
func build(t *testing.T, folder string) appsv1.DaemonSet {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if objects.Size() != 1 {
		t.Fatalf("%d objects, want 1", objects.Size())
	}
	text, err := objects.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if d.APIVersion != "apps/v1" || d.Kind != "DaemonSet" || d.Namespace != "kube-system" {
		t.Errorf("it is a %s of %s in the namespace %s", d.Kind, d.APIVersion, d.Namespace)
	}
	return d
}

func TestManifests(t *testing.T) {
	for _, tc := range []struct {
		folder, name string
		args         []string
		capabilities []corev1.Capability
		mounts       []string
	}{
		{"base", "unflannel", []string{"clean", "--settle", "12s", "--host-root", "/host"},
			[]corev1.Capability{"NET_ADMIN", "NET_RAW", "SYS_CHROOT"}, []string{"/host", "/host/run/xtables.lock"}},
		{"check", "unflannel-check", []string{"check"}, []corev1.Capability{"NET_ADMIN"}, nil},
	} {
		t.Run(tc.folder, func(t *testing.T) {
			d := build(t, tc.folder)
			pod := d.Spec.Template.Spec
			if d.Name != tc.name || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != tc.name ||
				d.Spec.Template.Labels["app.kubernetes.io/name"] != tc.name {
				t.Errorf("name %s, selector %v, labels %v", d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
			}
			if !pod.HostNetwork || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Error("it is not in the host's network, or has a token")
			}
			if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
				t.Errorf("it tolerates only %v", pod.Tolerations)
			}
			if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
				t.Fatalf("%d init containers and %d containers", len(pod.InitContainers), len(pod.Containers))
			}
			c := pod.InitContainers[0]
			if !slices.Equal(c.Args, tc.args) || !strings.HasSuffix(c.Image, "/unflannel:v0.1.0") {
				t.Errorf("it runs %s with %q", c.Image, c.Args)
			}
			s := c.SecurityContext
			if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, tc.capabilities) ||
				!*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Privileged != nil {
				t.Errorf("security context %+v", s)
			}
			var mounts []string
			volumes := map[string]corev1.Volume{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = v
			}
			for _, m := range c.VolumeMounts {
				mounts = append(mounts, m.MountPath)
				v, ok := volumes[m.Name]
				if !ok || v.HostPath == nil {
					t.Errorf("no volume %s", m.Name)
				} else if v.HostPath.Path == "/" && !m.ReadOnly {
					t.Error("the host's root can be written to")
				} else if v.HostPath.Path == "/run/xtables.lock" && *v.HostPath.Type != corev1.HostPathFileOrCreate {
					t.Error("the lock has to exist before")
				}
			}
			if !slices.Equal(mounts, tc.mounts) || len(pod.Volumes) != len(tc.mounts) {
				t.Errorf("mounts %q of %d volumes", mounts, len(pod.Volumes))
			}
			if main := pod.Containers[0].SecurityContext; !*main.RunAsNonRoot || len(main.Capabilities.Add) != 0 {
				t.Errorf("the container that stays may do %+v", main)
			}
		})
	}
}

// TestArguments: the program takes the arguments. With --help it parses them and
// does nothing else.
func TestArguments(t *testing.T) {
	program := filepath.Join(t.TempDir(), "unflannel")
	command := exec.Command("go", "build", "-o", program, "./cmd/unflannel")
	command.Dir = ".."
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, folder := range []string{"base", "check"} {
		args := build(t, folder).Spec.Template.Spec.InitContainers[0].Args
		if out, err := exec.Command(program, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", folder, err, out)
		}
		if out, err := exec.Command(program, append(args, "--no-such-flag", "--help")...).CombinedOutput(); err == nil {
			t.Errorf("%s: a flag that does not exist is taken:\n%s", folder, out)
		}
	}
}
