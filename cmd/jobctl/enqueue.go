package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxPayloadRead bounds what is read of a file or of stdin: more than any server takes.
const maxPayloadRead = 64 << 20

// enqueueFlags are the options of an enqueue. What is not given is not sent, so
// that the server's defaults hold.
type enqueueFlags struct {
	payload, queue, priority, runAt, expiresAt, key string
	delay, runTimeout                               time.Duration
	maxAttempts                                     int
	tags                                            []string
	uniqueKey, uniqueScope, onConflict, copiedFrom  string
	callbackURL                                     string
	uniqueStates                                    []string
	uniqueWindow                                    time.Duration
}

func newJobsEnqueueCommand(a *app) *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use: "enqueue TYPE", Short: "Add a job", Args: exactly("the type of the job"),
		Example: `  jobctl jobs enqueue email --payload '{"to":"ann@example.com","subject":"Hello","text":"It works."}'
  jobctl jobs enqueue webhook --payload @hook.json --queue hooks --priority high --key order-8123
  jobctl jobs enqueue sync --unique-key customer-42 --on-conflict replace
  generate-report-request | jobctl jobs enqueue report --payload - --delay 10m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.body(cmd, args[0], a.in)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if a.dryRun {
				return a.rehearseEnqueue(c, body, f.key)
			}
			answer, err := c.call(cmd.Context(), request{method: http.MethodPost, path: "/api/v1/jobs", body: body, key: f.key})
			if err != nil {
				return err
			}
			var job wireJob
			if err := json.Unmarshal(answer, &job); err != nil {
				return fmt.Errorf("read the server's answer: %w", err)
			}
			switch job.UniqueOutcome {
			case "held":
				a.say("Not added: job %s holds the unique key.", job.ID)
			case "replaced":
				a.say("Job %s waited under the unique key; it has the new content.", job.ID)
			default:
				a.say("Accepted. Follow it with: jobctl jobs get %s", job.ID)
			}
			return jobView.print(a, answer, []json.RawMessage{answer})
		},
	}
	a.addDryRun(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.payload, "payload", "p", "{}", "a JSON object: as `text`, @file, or - for stdin")
	flags.StringVar(&f.queue, "queue", "", "`queue` (default)")
	flags.StringVar(&f.priority, "priority", "", "low, default, high, critical or 0 to `5`; the higher runs first")
	flags.StringVar(&f.runAt, "run-at", "", "not before this `time`, such as 2026-12-01T06:00:00Z")
	flags.DurationVar(&f.delay, "delay", 0, "not before so long from now, such as 10m")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "`attempts` before it is a dead letter")
	flags.DurationVar(&f.runTimeout, "run-timeout", 0, "time for one run of it")
	flags.StringVar(&f.expiresAt, "expires-at", "", "dead if no run has begun by this `time`")
	flags.StringArrayVar(&f.tags, "tag", nil, "`tag` for searching; may be repeated")
	flags.StringVar(&f.key, "key", "", "idempotency `key`: the same one again answers the first job")
	flags.StringVar(&f.uniqueKey, "unique-key", "", "`key` that one job at a time may stand for")
	flags.StringVar(&f.uniqueScope, "unique-scope", "", "among the jobs of its type, queue, or all: `type`, queue or global")
	flags.StringSliceVar(&f.uniqueStates, "unique-states", nil, "`states` in which a job holds its key: waiting,running (default), waiting, or waiting,running,dead")
	flags.DurationVar(&f.uniqueWindow, "unique-window", 0, "hold the key so long from now, whatever becomes of the job, such as 1h")
	flags.StringVar(&f.onConflict, "on-conflict", "", "while another job holds the key: `return` it, replace it if it waits, or reject")
	flags.StringVar(&f.callbackURL, "callback-url", "", "`URL` that is told of the job's end by a signed webhook")
	flags.StringVar(&f.copiedFrom, "copied-from", "", "`id` of the job that this is a copy of")
	return cmd
}

// rehearseEnqueue prints the request that an enqueue would send.
func (a *app) rehearseEnqueue(c *client, body map[string]any, key string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	if err := a.write(append(text, '\n')); err != nil {
		return err
	}
	under := ""
	if key != "" {
		under = " under key " + key
	}
	return a.would("This would be sent to %s%s, which has not checked it", c.base, under)
}

// unique is the request's object of that name, of the flags that were given.
func (f *enqueueFlags) unique(given func(string) bool) map[string]any {
	u := map[string]any{}
	for _, x := range []struct {
		flag, field string
		value       any
	}{{"unique-key", "key", f.uniqueKey}, {"unique-scope", "scope", f.uniqueScope}, {"unique-states", "states", f.uniqueStates},
		{"unique-window", "window_seconds", f.uniqueWindow.Seconds()}, {"on-conflict", "on_conflict", f.onConflict}} {
		if given(x.flag) {
			u[x.field] = x.value
		}
	}
	return u
}

// body is the request. The payload is sent as it was given: no number in it passes
// through a Go number.
func (f *enqueueFlags) body(cmd *cobra.Command, jobType string, stdin io.Reader) (map[string]any, error) {
	payload, err := readPayload(f.payload, stdin)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"type": jobType, "payload": payload}
	given := cmd.Flags().Changed
	if given("run-at") && given("delay") {
		return nil, usage("", "--run-at and --delay say the same; give one")
	}
	for _, s := range []struct{ flag, field, value string }{{"queue", "queue", f.queue}, {"priority", "priority", f.priority}} {
		if given(s.flag) {
			body[s.field] = s.value
		}
	}
	if given("priority") && len(f.priority) == 1 && f.priority[0] >= '0' && f.priority[0] <= '9' {
		body["priority"] = json.Number(f.priority)
	}
	for _, s := range []struct{ flag, field, value string }{{"run-at", "run_at", f.runAt}, {"expires-at", "expires_at", f.expiresAt}} {
		if !given(s.flag) {
			continue
		}
		if _, err := time.Parse(time.RFC3339, s.value); err != nil {
			return nil, usage("Give a time with its zone, such as 2026-12-01T06:00:00Z.", "--%s %q is no time", s.flag, s.value)
		}
		body[s.field] = s.value
	}
	if given("delay") {
		body["delay_seconds"] = f.delay.Seconds()
	}
	if given("run-timeout") {
		body["timeout_seconds"] = f.runTimeout.Seconds()
	}
	if given("max-attempts") {
		body["max_attempts"] = f.maxAttempts
	}
	if given("tag") {
		body["tags"] = f.tags
	}
	if given("callback-url") {
		body["callback_url"] = f.callbackURL
	}
	if given("copied-from") {
		body["copied_from"] = f.copiedFrom
	}
	if u := f.unique(given); len(u) > 0 {
		if u["key"] == nil {
			return nil, usage("", "--unique-key is needed by the other unique flags")
		}
		body["unique"] = u
	}
	if given("key") && f.key == "" {
		return nil, usage("", "--key is empty")
	}
	return body, nil
}

// readPayload takes a payload as text, from @file, or from stdin.
func readPayload(arg string, stdin io.Reader) (json.RawMessage, error) {
	from := "--payload"
	text := []byte(arg)
	var err error
	switch {
	case arg == "-" || arg == "@-":
		from = "stdin"
		text, err = readBounded(stdin)
	case strings.HasPrefix(arg, "@"):
		from = arg[1:]
		text, err = readFile(arg[1:])
	}
	if err != nil {
		return nil, usage("--payload takes JSON text, @file, or - for stdin.", "read the payload: %v", err)
	}
	if json.Valid(text) {
		return text, nil
	}
	var at *json.SyntaxError
	var v json.RawMessage
	if err := json.Unmarshal(text, &v); errors.As(err, &at) {
		return nil, usage(payloadHint(arg), "%s is not JSON: at byte %d: %v", from, at.Offset, at)
	}
	return nil, usage(payloadHint(arg), "%s is not JSON", from)
}

func payloadHint(arg string) string {
	if _, err := os.Stat(arg); err == nil {
		return "To send the file of that name: --payload @" + arg
	}
	return `For example: --payload '{"to":"ann@example.com"}'`
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPayloadRead+1))
	if err == nil && len(text) > maxPayloadRead {
		err = errors.New("it is larger than 64 MiB")
	}
	return text, err
}
