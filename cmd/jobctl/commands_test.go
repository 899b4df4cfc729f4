package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves are the commands that do something, by their path below jobctl.
func leaves(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	found := map[string]*cobra.Command{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && cmd.Runnable() {
			found[strings.TrimPrefix(cmd.CommandPath(), "jobctl ")] = cmd
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
	if len(found) < 25 {
		t.Fatalf("only %d commands were found", len(found))
	}
	return found
}

// looks are the verbs and commands that only look; all others act.
var looks = []string{"status", "list", "get", "groups", "version", "doctor", "verify", "logs", "watch", "wait", "explain", "export", "migrate status", "migrate dump", "bench peer"}

func TestEveryCommandHasItsHelpAndTheFlagsOfItsKind(t *testing.T) {
	t.Parallel()
	for path, cmd := range leaves(t) {
		if strings.HasPrefix(path, "completion") || path == "help" {
			continue
		}
		verb := path[strings.LastIndex(path, " ")+1:]
		if cmd.Short == "" || !strings.Contains(cmd.Example, "jobctl "+path) {
			t.Errorf("%s: its help lacks a sentence or an example of it", path)
		}
		acts := !slices.Contains(looks, verb) && !slices.Contains(looks, path)
		if has := cmd.Flags().Lookup("dry-run") != nil; has != acts {
			t.Errorf("%s: --dry-run %v, want %v", path, has, acts)
		}
		fromServer := path == "status" || verb == "list" && path != "users list" && path != "tokens list" || verb == "get" || verb == "groups"
		if has := cmd.Flags().Lookup("watch") != nil && cmd.Flags().Lookup("interval") != nil; has != fromServer {
			t.Errorf("%s: --watch %v, want %v", path, has, fromServer)
		}
		if verb == "list" && fromServer && (cmd.Flags().Lookup("limit") == nil || cmd.Flags().Lookup("all") == nil) {
			t.Errorf("%s has no --limit or --all", path)
		}
	}
}
