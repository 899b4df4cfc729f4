package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

// app is what every command shares: where it reads and writes, and the flags that
// all commands have.
type app struct {
	in       io.Reader
	out, err io.Writer

	format  string
	json    bool
	server  string
	profile string
	timeout time.Duration
	quiet   bool
	verbose bool
	noColor bool
	yes     bool
	dryRun  bool

	cfg *config.Config
	// choose completes server and token by the profile, once.
	choose func() error
}

const rootHelp = `jobctl operates a Reliable Job Engine: jobs, queues, dead letters, the schema.

Commands for migrations, users, tokens, simulations, verify, audit verify and doctor work on the database, with the server's
DATABASE_URL or DB_ settings, or on the local Postgres that a server runs from this folder.
All others talk to a server, at JOBCTL_SERVER, with the token of JOBCTL_TOKEN or of the file
JOBCTL_TOKEN_FILE. A token is never given on the command line, where others could read it.

Profiles name servers in config.toml under $XDG_CONFIG_HOME/jobctl (~/.config/jobctl):

  profile = "staging"                          # the one that holds when none is named
  [profiles.staging]
  server = "https://jobs.staging.example.com"
  token_file = "staging.token"                 # mode 600; beside config.toml
  [profiles.production]
  server = "https://jobs.example.com"
  token_command = ["pass", "show", "jobs"]     # prints the token

--profile or JOBCTL_PROFILE chooses one. A flag wins over the environment, and that over the profile;
a profile's token goes to the profile's server alone.

` + exitCodeHelp

const rootExample = `  jobctl status
  jobctl jobs enqueue email --payload '{"to":"ann@example.com","subject":"Hello","text":"It works."}'
  jobctl jobs list --status failed -o jsonl
  jobctl dlq replay --id 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10`

func newRoot(a *app) *cobra.Command {
	root := noun("jobctl", "Operate a Reliable Job Engine", rootExample)
	root.Long = rootHelp
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd.Context()) }
	flags := root.PersistentFlags()
	flags.StringVarP(&a.format, "output", "o", formatTable, "`form` of the data: "+strings.Join(formats, ", "))
	flags.BoolVar(&a.json, "json", false, "the same as -o json: the API's answer, unchanged")
	flags.StringVar(&a.server, "server", "", "`address` of the server, instead of JOBCTL_SERVER")
	flags.StringVar(&a.profile, "profile", "", "`name` of a chapter of config.toml, instead of JOBCTL_PROFILE")
	flags.DurationVar(&a.timeout, "timeout", 0, "longest wait for one answer (30s), or for work on the database (10m)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing on stderr but errors")
	flags.BoolVar(&a.verbose, "verbose", false, "say on stderr what is asked of the server")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours, as with NO_COLOR or TERM=dumb")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do harm without asking; needed where no terminal is")
	root.AddCommand(newVersionCommand(a), a.watched(newStatusCommand(a)), newJobsCommand(a), newQueuesCommand(a), newTypesCommand(a), newWorkersCommand(a), newDLQCommand(a), newOperationsCommand(a), newAuditCommand(a),
		newMigrateCommand(a), newUsersCommand(a), newTokensCommand(a), newVerifyCommand(a), newDoctorCommand(a), newSimulateCommand(a), newBenchCommand(a))
	root.InitDefaultCompletionCmd("help")
	explainCompletion(root)
	a.addCompletions(root)
	return root
}

// prepare checks the flags that all commands have and reads the settings.
func (a *app) prepare(ctx context.Context) error {
	if a.json {
		a.format = formatJSON
	}
	if err := oneOf("--output", a.format, formats); err != nil {
		return err
	}
	if a.timeout < 0 {
		return usage("Give a time such as 30s or 5m.", "--timeout %s is negative", a.timeout)
	}
	cfg, _, err := config.FromEnvironment(config.Ctl)
	if err != nil {
		return &failure{exitUsage, err, "Correct the environment, or leave the settings out."}
	}
	a.cfg = cfg
	given := a.server != "" || cfg.Given("JOBCTL_SERVER")
	if a.server == "" {
		a.server = cfg.Ctl.Server
	}
	a.noColor = a.noColor || cfg.Ctl.NoColor || !isTerminal(a.out)
	// Commands that talk to no server need no profile, nor the program it may name.
	a.choose = sync.OnceValue(func() error { return a.useProfile(ctx, given) })
	return nil
}

// limit is the time that --timeout allows, or usual.
func (a *app) limit(usual time.Duration) time.Duration {
	if a.timeout > 0 {
		return a.timeout
	}
	return usual
}

// say is talk: it goes to stderr, and --quiet silences it.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.err, printable(fmt.Sprintf(format, args...)))
	}
}

// noun is a command that only has others below it. Cobra would print the help and
// call it a success; an unknown word is an error here, at every depth.
func noun(use, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownWord(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			_ = cmd.Help() // it fails only where stderr does
			return &failure{exitUsage, errSilent, ""}
		},
	}
}

func unknownWord(cmd *cobra.Command, word string) error {
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	if near := nearest(word, known); near != "" {
		return usage(fmt.Sprintf("Did you mean: %s %s", cmd.CommandPath(), near), "%s has no command %q", cmd.CommandPath(), word)
	}
	return usage("It has: "+strings.Join(known, ", "), "%s has no command %q", cmd.CommandPath(), word)
}

// flagError says what is wrong with a flag and which one may be meant.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasSubCommands() {
		return unknownWord(cmd, words[0]) // its flags are none of cmd's
	}
	var unknown *pflag.NotExistError
	if !asError(err, &unknown) {
		return usage("", "%v", err)
	}
	name := unknown.GetSpecifiedName()
	if strings.Contains(strings.ToLower(name), "token") || strings.Contains(strings.ToLower(name), "password") {
		return usage("Set JOBCTL_TOKEN, or JOBCTL_TOKEN_FILE to the path of a file that holds it.",
			"--%s: a secret on the command line can be read by others", name)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := nearest(name, known); near != "" {
		return usage(fmt.Sprintf("Did you mean --%s?  See: %s --help", near, cmd.CommandPath()), "%s has no flag --%s", cmd.CommandPath(), name)
	}
	return usage("", "%v", err)
}

// exactly asks for as many arguments as there are names, and names those missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(exampleOf(cmd), "%s needs %s", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usage(exampleOf(cmd), "%s takes no %q", cmd.CommandPath(), args[len(names)])
		}
		return nil
	}
}

func exampleOf(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if first == "" {
		return ""
	}
	return "For example: " + first
}
