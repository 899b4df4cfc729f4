package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// The bounds of what one run shows; the API has the whole.
const (
	errorShown  = 8 << 10
	framesShown = 60
	maxAttempts = 1000
)

// attempts are the runs of a job, newest first. The newest that left an error
// stands open.
func (v *visit) attempts(d dossier) ([]views.Attempt, string) {
	var list []views.Attempt
	opened, lost, counted := false, 0, 0
	for i := len(d.attempts) - 1; i >= 0; i-- {
		a := &d.attempts[i]
		if a.Run == 0 {
			continue // it ended while it waited: an event, not a run
		}
		m := v.attempt(a, d.refused)
		if counts(a.Outcome) {
			counted++
		}
		if a.Outcome == engine.OutcomeLeaseExpired || a.Outcome == engine.OutcomeCrashed {
			lost++
		}
		if counts(a.Outcome) || a.Outcome == 0 {
			m.Title = strconv.Itoa(a.Attempt) + " of " + strconv.Itoa(d.job.MaxAttempts)
		} else {
			m.Title = "not counted"
		}
		if !opened && (a.Error != "" || a.ErrorClass != "" || a.Outcome == 0) {
			m.Open, opened = true, true
		}
		list = append(list, m)
	}
	s := strconv.Itoa(d.job.Attempt) + " of " + strconv.Itoa(d.job.MaxAttempts) + " used"
	if lost > 0 {
		s += ", " + plural(int64(lost), "run") + " lost"
	}
	if d.job.Replays > 0 {
		s += ", replayed " + strconv.Itoa(d.job.Replays) + "×"
	}
	return list, s
}

// counts tells whether a run with this end uses up an attempt.
func counts(o engine.Outcome) bool {
	return o == engine.OutcomeCompleted || o == engine.OutcomeFailed || o == engine.OutcomeTimedOut
}

// anchorOf names a run on its page: "a3" for run 3. Tokens only rise, runs are
// their rank, so that a link stays with its run.
func anchorOf(a *inspect.Attempt) string { return "a" + strconv.FormatInt(a.Run, 10) }

func (v *visit) workerLink(a *inspect.Attempt) views.Link {
	switch {
	case a.WorkerName != "":
		return views.Link{Text: a.WorkerName, Href: v.k.url("/workers/" + strconv.FormatInt(a.WorkerID, 10))}
	case a.WorkerID != 0:
		return views.Link{Text: "worker " + strconv.FormatInt(a.WorkerID, 10)}
	}
	return views.Link{}
}

func (v *visit) attempt(a *inspect.Attempt, refused []inspect.RefusedWrite) views.Attempt {
	began := a.StartedAt
	if began.IsZero() {
		began = a.ClaimedAt
	}
	m := views.Attempt{
		Anchor: anchorOf(a), Run: "run " + strconv.FormatInt(a.Run, 10), Outcome: "running", Worker: v.workerLink(a), Build: a.Build,
		Token: strconv.FormatInt(a.FencingToken, 10), Started: v.clock.at(began), ErrorClass: a.ErrorClass, Error: cut(a.Error, errorShown),
		Stack: cut(a.Stack, errorShown), HasResult: a.HasResult,
	}
	if a.Outcome != 0 {
		m.Outcome = views.Outcome(a.Outcome.String())
		m.Ran = span(a.Duration())
	} else {
		m.Ran = span(max(v.clock.now.Sub(began), 0))
		m.Lease = "Its lease ends in " + coarse(a.LeaseExpiresAt.Sub(v.clock.now)) + " unless renewed."
		if !a.LeaseExpiresAt.After(v.clock.now) {
			m.Lease = "Its lease ended " + agoText(v.clock.now.Sub(a.LeaseExpiresAt)) + "; the reaper takes the job back."
		}
	}
	if p := a.Progress; p != nil {
		m.Told = strconv.FormatFloat(p.Percent, 'f', -1, 64) + " %"
		if p.Text != "" {
			m.Told += ", " + cut(p.Text, 200)
		}
	}
	if a.HasWait {
		m.Wait = span(a.Wait)
	}
	if a.Fingerprint != "" {
		m.Group = views.Link{Text: "fp " + shortPrint(a.Fingerprint), Href: v.k.groupURL(a.Fingerprint)}
	}
	m.OwnFrames, m.OtherFrames, m.OtherText = framesOf(a.Stack)
	m.Logs, m.LogsText = v.logs(m.Anchor, a.Logs)
	for i := range refused {
		if r := &refused[i]; r.TokenHeld == a.FencingToken {
			m.Refused = append(m.Refused, views.Event{At: v.clock.at(r.At), State: views.StateLate, Icon: "ban", Text: refusedText(r)})
		}
	}
	return m
}

// framesOf takes a stack as the runtime writes it apart: the handler's own frames,
// and those of the runtime, of the engine and of the panic itself.
func framesOf(stack string) (own, other []views.StackFrame, otherText string) {
	lines := strings.Split(stack, "\n")
	packages := map[string]bool{}
	for i := 0; i+1 < len(lines); i++ {
		name, at := lines[i], lines[i+1]
		if name == "" || name[0] == '\t' || !strings.HasPrefix(at, "\t") {
			continue
		}
		f := views.StackFrame{Func: cut(funcName(name), 200), At: cut(place(at), 300)}
		if p, foreign := foreignPackage(f.Func); foreign {
			if len(other) < framesShown {
				other = append(other, f)
			}
			packages[p] = true
		} else if len(own) < framesShown {
			own = append(own, f)
		}
		i++
	}
	if len(other) > 0 {
		otherText = plural(int64(len(other)), "more frame") + ": " + strings.Join(slices.Sorted(maps.Keys(packages)), ", ")
	}
	if len(own) == 0 && len(other) == 0 && strings.TrimSpace(stack) != "" {
		// Another language's stack: shown as it is.
		for i, l := range lines {
			if strings.TrimSpace(l) == "" {
				continue
			}
			if i >= framesShown {
				break
			}
			own = append(own, views.StackFrame{Func: cut(strings.TrimSpace(l), 300)})
		}
	}
	return own, other, otherText
}

// funcName leaves out the arguments, which are addresses.
func funcName(line string) string {
	if rest, ok := strings.CutPrefix(line, "created by "); ok {
		name, _, _ := strings.Cut(rest, " in goroutine")
		return name
	}
	if i := strings.LastIndex(line, "("); i > 0 && strings.HasSuffix(line, ")") && !strings.HasPrefix(line[i:], "(*") {
		return line[:i]
	}
	return line
}

// place is a file and its line, without the offset into the function.
func place(line string) string {
	line = strings.TrimSpace(line)
	if i := strings.LastIndex(line, " +0x"); i > 0 {
		line = line[:i]
	}
	return line
}

const enginePackage = "github.com/reliable-job-engine/reliable-job-engine/engine"

// foreignPackage tells frames that are not the handler's: the standard library's,
// whose paths have no dot before the first slash, and the engine's own.
func foreignPackage(name string) (pkg string, foreign bool) {
	slash := strings.LastIndex(name, "/")
	dot := strings.Index(name[slash+1:], ".")
	if dot < 0 {
		return "runtime", true // panic, and other built-ins
	}
	pkg = name[:slash+1+dot]
	if pkg == enginePackage || strings.HasPrefix(pkg, enginePackage+"/") {
		return "engine", true
	}
	first, _, _ := strings.Cut(pkg, "/")
	return pkg, pkg != "main" && !strings.Contains(first, ".") && standard[first]
}

// standard has the first steps of the standard library's packages that stand in
// stacks of handlers. A module may have a path without a dot too, so that a guess
// by the dot alone would hide the handler's own frames.
var standard = map[string]bool{
	"runtime": true, "testing": true, "net": true, "os": true, "io": true, "sync": true, "reflect": true, "encoding": true, "context": true,
	"fmt": true, "strings": true, "bytes": true, "crypto": true, "database": true, "errors": true, "time": true, "internal": true,
	"syscall": true, "bufio": true, "regexp": true, "sort": true, "slices": true, "maps": true, "strconv": true, "text": true, "html": true,
	"math": true, "compress": true, "archive": true, "log": true, "unicode": true, "mime": true, "path": true,
}

// storedLine is a log line as a run keeps it.
type storedLine struct {
	N      int               `json:"n"`
	Time   time.Time         `json:"time"`
	Level  string            `json:"level"`
	Msg    string            `json:"msg"`
	Fields map[string]string `json:"fields"`
}

func (v *visit) logs(anchor string, raw json.RawMessage) ([]views.LogLine, string) {
	if len(raw) == 0 {
		return nil, ""
	}
	var stored []storedLine
	if err := json.Unmarshal(raw, &stored); err != nil {
		return []views.LogLine{{N: "1", Anchor: anchor + "-l1", Level: "warn", Text: "The log of this run cannot be read: " + err.Error()}}, ""
	}
	lines := make([]views.LogLine, len(stored))
	for i, l := range stored {
		n := strconv.Itoa(i + 1)
		if l.N > 0 {
			n = strconv.Itoa(l.N)
		}
		lines[i] = views.LogLine{
			N: n, Anchor: anchor + "-l" + n, At: v.clock.at(l.Time), Level: strings.ToLower(l.Level), Text: l.Msg, Fields: v.fieldsText(l.Fields),
		}
	}
	return lines, plural(int64(len(lines)), "line")
}

// fieldsText writes fields in the order of their names, masked like payloads.
func (v *visit) fieldsText(fields map[string]string) string {
	parts := make([]string, 0, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch {
		case v.k.mask(name):
			value = maskText
		case strings.ContainsAny(value, " \"\n\t="):
			value = fmt.Sprintf("%q", value)
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}
