package built

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"softib/internal/sources"
)

// sharedName is the variable with the folder that packages of one run share: whoever needs something first builds it
// there. It is empty when the run begins, so all that is in it was made from the sources of now.
const sharedName = "SOFTIB_BUILT"

// Libraries puts the drop-in libraries into the folder dir.
func Libraries(dir string) error {
	return put("lib", dir, func(root, path string) *exec.Cmd {
		return exec.Command(filepath.Join(root, "scripts/dropin.sh"), path)
	})
}

// Command puts the command softib at path. It finds the libraries if they are in a folder lib beside it.
func Command(path string) error {
	return put("softib", path, func(root, path string) *exec.Cmd {
		cmd := exec.Command("go", "build", "-o", path, "./cmd/softib")
		cmd.Dir = root
		return cmd
	})
}

// put makes path, with the command that build returns or as a copy of what others have built of that name.
func put(name, path string, build func(root, path string) *exec.Cmd) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("built: %w", err)
	}
	root, err := moduleRoot()
	if err != nil {
		return fmt.Errorf("built: %w", err)
	}
	// Sources are what a kept result depends on. What is made of them is not: go test would take the folder of each run
	// for a change, so it lies outside of the module and is not found through os.Getenv.
	if err := sources.LookAt(root); err != nil {
		return fmt.Errorf("built: %w", err)
	}
	shared, _ := syscall.Getenv(sharedName)
	if shared == "" {
		return run(build(root, path))
	}
	original, err := once(shared, name, func(path string) error { return run(build(root, path)) })
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("built: %w", err)
	}
	return run(exec.Command("cp", "-rT", original, path))
}

// once is the path of name in the folder dir, which is made there by the first process that asks. The others wait.
func once(dir, name string, build func(path string) error) (string, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("built: %w; next: give %s a folder, or unset it", err, sharedName)
	}
	defer lock.Close()
	for {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("built: flock: %w", err)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	// Renamed when it is whole: a build that fails leaves nothing that another would take.
	fresh := filepath.Join(dir, "."+name+".new")
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("built: %w", err)
	}
	if err := build(fresh); err != nil {
		return "", err
	}
	return path, os.Rename(fresh, path)
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// moduleRoot is the folder of go.mod; a test runs in the folder of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = parent
	}
}
