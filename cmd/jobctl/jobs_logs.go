package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// wireLine is a log line of a run.
type wireLine struct {
	Run    int64             `json:"run"`
	N      int               `json:"n"`
	Time   *time.Time        `json:"time"`
	Level  string            `json:"level"`
	Text   string            `json:"msg"`
	Fields map[string]string `json:"fields"`
}

var lineView = view[wireLine]{
	id:    func(l wireLine) string { return fmt.Sprintf("%d:%d", l.Run, l.N) },
	empty: "No run has logged anything.",
	columns: []column[wireLine]{
		{name: "run", right: true, value: func(l wireLine) string { return strconv.FormatInt(l.Run, 10) }},
		{name: "line", right: true, value: func(l wireLine) string { return strconv.Itoa(l.N) }},
		{name: "time", value: func(l wireLine) string { return instant(l.Time) }},
		{name: "level", value: func(l wireLine) string { return l.Level }},
		{name: "text", value: wireLine.text},
	},
}

// text is the line with its fields in the order of their names.
func (l wireLine) text() string {
	parts := []string{oneLine(l.Text, 4000)}
	for _, name := range slices.Sorted(maps.Keys(l.Fields)) {
		parts = append(parts, name+"="+oneLine(l.Fields[name], 4000))
	}
	return strings.Join(parts, " ")
}

// followEvery is how often logs --follow asks: as often as a run tells.
const followEvery = time.Second

func newJobsLogsCommand(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Show what the runs of a job have logged", Args: exactly("the id of a job"),
		Long: "Show what the runs of a job have logged: the last 200 lines of each. Lines of a run that goes on are a second old at most.",
		Example: `  jobctl jobs logs 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl jobs logs 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --follow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if follow {
				return a.follow(cmd.Context(), c, ids[0])
			}
			body, lines, err := c.lines(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			return lineView.print(a, body, lines)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines until the job has ended")
	return cmd
}

func (c *client) lines(ctx context.Context, id string) (body []byte, lines []json.RawMessage, err error) {
	if body, err = c.one(ctx, "/api/v1/jobs/"+id+"/logs", nil); err != nil {
		return nil, nil, err
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return body, list.Data, nil
}

// follow prints each line once. The state is asked before the lines, so that those
// of the end are not missed.
func (a *app) follow(ctx context.Context, c *client, id string) error {
	seen := map[int64]int{} // by run: the last line's number
	for {
		body, err := c.one(ctx, "/api/v1/jobs/"+id, nil)
		if err != nil {
			return err
		}
		var job wireJob
		if err := json.Unmarshal(body, &job); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		_, lines, err := c.lines(ctx, id)
		if err != nil {
			return err
		}
		if err := a.printNew(lines, seen); err != nil {
			return err
		}
		if job.ended() {
			a.say("job %s is %s", id, job.Status)
			return nil
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(followEvery):
		}
	}
}

func (a *app) printNew(lines []json.RawMessage, seen map[int64]int) error {
	var b strings.Builder
	for _, raw := range lines {
		var l wireLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		if l.N <= seen[l.Run] {
			continue
		}
		seen[l.Run] = l.N
		if a.format == formatTable || a.format == formatWide {
			fmt.Fprintf(&b, "%s %-5s %s\n", instant(l.Time), printable(l.Level), printable(l.text()))
		} else {
			fmt.Fprintf(&b, "%s\n", raw)
		}
	}
	return a.write([]byte(b.String()))
}
