package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"softib/subnet/sm"
)

// commands are all that a user can type.
func commands(root *cobra.Command) (list []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		if c.Runnable() && !c.HasSubCommands() {
			list = append(list, c)
		}
		list = append(list, commands(c)...)
	}
	return list
}

// noJSON have nothing to say that a program would read: they become another program, or write files and scripts.
var noJSON = []string{"softib exec", "softib man", "softib completion"}

func TestEveryCommand(t *testing.T) {
	list := commands(newRoot())
	if len(list) < 30 {
		t.Fatalf("%d commands", len(list))
	}
	for _, c := range list {
		path := c.CommandPath()
		if c.Short == "" {
			t.Errorf("%s has no description", path)
		}
		if strings.HasPrefix(path, "softib completion") {
			continue // cobra's own
		}
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		without := false
		for _, p := range noJSON {
			without = without || strings.HasPrefix(path, p)
		}
		if !without && c.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", path)
		}
	}
}

func TestMan(t *testing.T) {
	dir := t.TempDir()
	wants(t, shown(t, "man", dir), "pages in")
	for _, c := range commands(newRoot()) {
		b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		// A hyphen is written so that it can be copied; the short text is in the first section.
		if text := strings.ReplaceAll(string(b), `\`, ""); !strings.Contains(text, c.Short) {
			t.Errorf("the page of %s lacks %q", c.CommandPath(), c.Short)
		}
	}
}

func TestCompletion(t *testing.T) {
	newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{SweepInterval: -1})
	for _, c := range []struct {
		line string
		want string
		not  string
	}{
		{"exec h", "h8", "leaf1"}, {"exec l", "leaf4", "h1"}, {"fault link s", "spine2", "h1"},
		{"fault link leaf1 ", "ber=", ""}, {"fault node h9 guid=sp", "guid=spine2", "h1"},
		{"route trace h1 h", "h2", ""},
		{"status --name ", "default", ""}, {"up fat", "fat-tree:", "live"}, {"fault l", "link", "clear"},
		{"top --by ", "errors", ""}, {"topo check ", "live", ""}, {"topo diff live ", "torus:", ""},
		{"topo diff live live ", ":4", "live"},
	} {
		words := strings.Split(c.line, " ")
		out, _, err := softib(t, append([]string{"__complete"}, words...)...)
		if err != nil {
			t.Errorf("%q: %v", c.line, err)
		}
		lines := "\n" + out
		if !strings.Contains(lines, "\n"+c.want) || c.not != "" && strings.Contains(lines, "\n"+c.not+"\n") {
			t.Errorf("%q offers\n%s", c.line, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, _, err := softib(t, "completion", shell)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, out, "softib", "__complete")
	}
}
