package main

import (
	"context"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// completionPatience is how long a shell waits at most for what is completed.
	completionPatience = 1500 * time.Millisecond
	completionRows     = 50
)

// explainCompletion makes cobra's command one of ours: it says what it needs, and
// an unknown shell is an error.
func explainCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		ours := noun(cmd.Use, cmd.Short, "  source <(jobctl completion bash)\n  jobctl completion zsh >\"${fpath[1]}/_jobctl\"\n  jobctl completion fish | source")
		cmd.Short, cmd.Example, cmd.Args, cmd.RunE = "Print the completion script of a shell", ours.Example, ours.Args, ours.RunE
		cmd.Long = "Print the completion script of a shell. Queues, types and ids are asked of the server as one types, for\n" +
			"1.5 s at most; where it does not answer, nothing is offered."
		for _, shell := range cmd.Commands() {
			shell.Example = "  jobctl completion " + shell.Name()
		}
	}
}

// words are what may stand somewhere, each with what is said of it after a tab.
type words func(ctx context.Context, a *app, c *client) ([]string, error)

// flagWords are the flags whose values the server knows, flagLists those with a
// list of their own.
var (
	flagWords = map[string]words{"queue": queueWords, "type": typeWords, "profile": profileWords}
	flagLists = map[string][]string{"output": formats, "status": statuses, "cause": deadReasons, "priority": {"low", "default", "high", "critical"},
		"pace": {"all", "canary", "rate"}, "on-conflict": {"return", "replace", "reject"}, "unique-scope": {"type", "queue", "global"}}
)

// argWords are what a command's arguments name, by the path below jobctl; the
// longest that fits holds.
var argWords = map[string]words{
	"jobs": jobWords(""), "jobs stop": jobWords("leased"), "jobs enqueue": typeWords, "dlq": deadWords(false), "dlq restore": deadWords(true),
	"queues": queueWords, "types": typeWords, "operations": operationWords,
}

// addCompletions lets every command of the tree complete what it takes.
func (a *app) addCompletions(root *cobra.Command) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.LocalNonPersistentFlags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				var complete cobra.CompletionFunc
				if list, ok := flagLists[f.Name]; ok {
					complete = cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
				} else if of, ok := flagWords[f.Name]; ok {
					complete = a.completion(of, true)
				} else {
					return
				}
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag is there, and has none yet
			})
		}
		if cmd.ValidArgsFunction == nil && cmd.Runnable() && !cmd.HasSubCommands() {
			if of := argsOf(cmd); of != nil {
				cmd.ValidArgsFunction = a.completion(of, strings.HasSuffix(cmd.Use, "..."))
			} else {
				cmd.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func argsOf(cmd *cobra.Command) words {
	if !strings.Contains(cmd.Use, " ") { // it takes none
		return nil
	}
	path := strings.Fields(cmd.CommandPath())[1:]
	for n := len(path); n > 0; n-- {
		if of, ok := argWords[strings.Join(path[:n], " ")]; ok {
			return of
		}
	}
	return nil
}

// completion asks for words within a bound, and says nothing when that fails: a
// shell is no place for an error. many: more than one may be given.
func (a *app) completion(of words, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		const done = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if !many && len(args) > 0 {
			return nil, done
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		quiet := *a
		quiet.err, quiet.quiet, quiet.verbose, quiet.format, quiet.json = io.Discard, true, false, formatTable, false
		if quiet.prepare(ctx) != nil {
			return nil, done
		}
		c, err := quiet.connect()
		if err != nil {
			c = nil // what is read of a file needs no server
		}
		list, err := of(ctx, &quiet, c)
		if err != nil {
			return nil, done
		}
		return slices.DeleteFunc(list, func(w string) bool {
			word, _, _ := strings.Cut(w, "\t")
			return !strings.HasPrefix(word, begun) || slices.Contains(args, word)
		}), done
	}
}

// described is a word and what is said of it, on one line.
func described(word string, about ...string) string {
	about = slices.DeleteFunc(about, func(s string) bool { return s == "" })
	return printable(word) + "\t" + oneLine(strings.ReplaceAll(printable(strings.Join(about, ", ")), "\t", " "), 80)
}

// askWords reads one page of a list.
func askWords[T any](ctx context.Context, c *client, path string, query url.Values, say func(T) string) ([]string, error) {
	if c == nil {
		return nil, errSilent
	}
	items, err := readList[T](ctx, c, path, query)
	if err != nil {
		return nil, err
	}
	list := make([]string, len(items))
	for i, it := range items {
		list[i] = say(it.it)
	}
	return list, nil
}

func rows() url.Values { return url.Values{"limit": {strconv.Itoa(completionRows)}} }

func queueWords(ctx context.Context, _ *app, c *client) ([]string, error) {
	return askWords(ctx, c, "/api/v1/queues", nil, func(q wireQueue) string { return described(q.Name, whole(q.Depth.Ready)+" ready", q.state()) })
}

// typeWords are those of the newest jobs: the server keeps no list of its own.
func typeWords(ctx context.Context, _ *app, c *client) ([]string, error) {
	list, err := askWords(ctx, c, "/api/v1/jobs", url.Values{"limit": {"200"}}, func(j wireJob) string { return printable(j.Type) })
	slices.Sort(list)
	return slices.Compact(list), err
}

func jobWords(status string) words {
	return func(ctx context.Context, _ *app, c *client) ([]string, error) {
		query := rows()
		setGiven(query, map[string]string{"status": status})
		return askWords(ctx, c, "/api/v1/jobs", query, func(j wireJob) string { return described(j.ID, j.Type, j.Queue, j.Status) })
	}
}

func deadWords(discarded bool) words {
	return func(ctx context.Context, _ *app, c *client) ([]string, error) {
		query := rows()
		if discarded {
			query.Set("discarded", "true")
		}
		return askWords(ctx, c, "/api/v1/dlq", query, func(d wireDead) string { return described(d.ID, d.Type, d.Queue, d.Error.text()) })
	}
}

func operationWords(ctx context.Context, _ *app, c *client) ([]string, error) {
	return askWords(ctx, c, "/api/v1/operations", rows(), func(o wireOperation) string { return described(o.ID, o.Action, o.Status, o.Reason) })
}

func profileWords(_ context.Context, a *app, _ *client) ([]string, error) {
	file, err := readProfiles(filepath.Join(a.cfg.Ctl.ConfigDir, "jobctl", "config.toml"))
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(file.Profiles))
	for name, p := range file.Profiles {
		list = append(list, described(name, p.Server))
	}
	slices.Sort(list)
	return list, nil
}
