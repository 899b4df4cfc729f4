package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// checks are all of them in order. No database is asked here.
func (q *inquiry) checks() []Check {
	switch {
	case q.job.State == "":
		return []Check{{Code: CheckNoPlace, Verdict: Failed,
			Text: "It stands nowhere: no place holds it and no run has ended it. That is a fault, which jobctl verify reports."}}
	case q.job.State.Finished():
		return []Check{q.checkEnded()}
	case q.job.State == engine.StateLeased:
		return q.checksOfARun()
	}
	list := []Check{q.checkPaused(), q.checkDue(), {Code: CheckLeased, Verdict: Passed, Text: "No worker holds it."}, q.checkWorker(),
		q.checkSlots(), q.checkSuspect(), q.checkHeld(), q.checkAhead()}
	return append(list, q.checkStart(q.place.InLine && q.claimable(list)))
}

// checksOfARun: what keeps a job in line does not matter to one that left it.
func (q *inquiry) checksOfARun() (list []Check) {
	for _, code := range []CheckCode{CheckPaused, CheckNotDue, CheckLeased, CheckWorker, CheckSlots, CheckSuspect, CheckHeld, CheckAhead, CheckStart} {
		if code == CheckLeased {
			list = append(list, q.checkLease())
			continue
		}
		list = append(list, notApplicable(code, uncheckedText[code]+" does not matter once a worker holds it."))
	}
	return list
}

var uncheckedText = map[CheckCode]string{
	CheckPaused: "Whether its queue is paused", CheckNotDue: "When it is due", CheckWorker: "Who else could take it", CheckSlots: "Who has a free slot",
	CheckSuspect: "Which suspects wait", CheckHeld: "Whether it is held", CheckAhead: "Who is ahead", CheckStart: "What a claim would find",
}

func notApplicable(code CheckCode, text string) Check {
	return Check{Code: code, Verdict: NotApplicable, Text: text}
}

func (q *inquiry) checkEnded() Check {
	j := &q.job
	c := Check{Code: CheckEnded, Verdict: Failed, Evidence: []Evidence{{"status", string(j.State)}, {"finished_at", j.FinishedAt}, {"attempts", int64(j.Attempt)}}}
	ago := spell(q.now.Sub(j.FinishedAt)) + " ago"
	switch j.State {
	case engine.StateCompleted:
		c.Text = "It completed " + ago + "."
	case engine.StateCancelled:
		c.Text = "It was cancelled " + ago + "."
	case engine.StateDeadLetter:
		c.Evidence = append(c.Evidence, Evidence{"dead_reason", string(j.DeadReason)})
		if j.DiscardedAt.IsZero() {
			c.Text, c.Help = "It died "+ago+", "+string(j.DeadReason)+", and will not run again by itself.", Help{Code: HelpReplay}
			break
		}
		c.Text, c.Help = "It died, and was discarded "+spell(q.now.Sub(j.DiscardedAt))+" ago.", Help{Code: HelpRestore}
		c.Evidence = append(c.Evidence, Evidence{"discarded_at", j.DiscardedAt})
	case engine.StatePending, engine.StateBlocked, engine.StateLeased, engine.StateFailed:
	}
	return c
}

// checkPaused asks what the claim asks of a queue.
func (q *inquiry) checkPaused() Check {
	p := &q.place
	if p.Free {
		return Check{Code: CheckPaused, Verdict: Passed, Text: "Its queue " + q.job.Queue + " is not paused."}
	}
	at := instant(p.PausedAt)
	c := Check{Code: CheckPaused, Verdict: Failed, Help: Help{HelpQueue, q.job.Queue}, Evidence: []Evidence{{"queue", q.job.Queue}, {"paused_at", at}},
		Text: "Its queue " + q.job.Queue + " was paused " + spell(q.now.Sub(at)) + " ago"}
	if p.LastAct == "pause" && p.LastActAt.After(at.Add(-time.Second)) {
		c.Text += " by " + p.LastActor
		c.Evidence = append(c.Evidence, Evidence{"paused_by", p.LastActor})
	}
	c.Text += "."
	if p.PausedReason != "" {
		c.Evidence = append(c.Evidence, Evidence{"reason", p.PausedReason})
	}
	if until := instant(p.ResumeAt); !until.IsZero() {
		c.Evidence = append(c.Evidence, Evidence{"resume_at", until})
	}
	return c
}

func (q *inquiry) checkDue() Check {
	j := &q.job
	if !q.place.Scheduled {
		c := Check{Code: CheckNotDue, Verdict: Passed, Text: "It is due."}
		if q.place.InLine {
			c.Text = "It has been due for " + spell(q.now.Sub(q.place.ReadyAt)) + "."
			c.Evidence = []Evidence{{"run_at", q.place.ReadyAt.UTC()}}
		}
		return c
	}
	at := q.place.RunAt.UTC()
	c := Check{Code: CheckNotDue, Verdict: Failed, Help: Help{Code: HelpRunNow}, Evidence: []Evidence{{"run_at", at}}}
	left := at.Sub(q.now)
	switch {
	case left <= 0 && q.place.Led:
		c.Text = "It has been due for " + spell(-left) + " and is put in line within " + spell(q.pace.Poll) + "."
	case left <= 0:
		c.Text = "It has been due for " + spell(-left) + ", but no process leads the upkeep, which puts due jobs in line."
		c.Help = Help{Code: HelpSystem}
	case j.State == engine.StateFailed:
		c.Text = fmt.Sprintf("It waits out its backoff after attempt %d of %d%s: due in %s.", j.Attempt, j.MaxAttempts, withError(j), spell(left))
	default:
		c.Text = "It is not due yet: in " + spell(left) + "."
	}
	if j.State == engine.StateFailed {
		c.addDelay(q)
	}
	return c
}

func withError(j *Job) string {
	if j.LastError == nil || j.LastError.Class == "" || len(j.LastError.Class) > 100 {
		return ""
	}
	return " failed with " + j.LastError.Class
}

// addDelay tells the delay that was drawn. Bounds are those of the common policy; a
// delay beyond them was set by the handler or by the type's own policy.
func (c *Check) addDelay(q *inquiry) {
	drawn := q.place.RunAt.Sub(q.job.UpdatedAt)
	c.Evidence = append(c.Evidence, Evidence{"attempts", int64(q.job.Attempt)}, Evidence{"max_attempts", int64(q.job.MaxAttempts)}, Evidence{"delay", drawn})
	c.Text += " The delay is " + spell(drawn)
	least, most, ok := engine.DelayBounds(q.pace.Retry, q.job.Attempt)
	const slack = 100 * time.Millisecond // the delay is drawn before the run's end is written
	if ok && drawn >= least-slack && drawn <= most+slack {
		c.Evidence = append(c.Evidence, Evidence{"delay_least", least}, Evidence{"delay_most", most})
		c.Text += ", drawn between " + spell(least) + " and " + spell(most)
	}
	c.Text += "."
}

// checkLease: a job that runs is what this check fails for, and no trouble unless
// its lease has run out.
func (q *inquiry) checkLease() Check {
	j, l := &q.job, q.job.Lease
	who := l.WorkerName
	if who == "" {
		who = "worker " + strconv.FormatInt(l.WorkerID, 10)
	}
	beat := instant(q.place.HeartbeatAt)
	c := Check{Code: CheckLeased, Verdict: Failed, Help: Help{HelpWorker, strconv.FormatInt(l.WorkerID, 10)}, Evidence: []Evidence{
		{"worker", who}, {"worker_id", Token(l.WorkerID)}, {"fencing_token", Token(l.FencingToken)}, {"claimed_at", l.ClaimedAt}, {"lease_expires_at", l.ExpiresAt}}}
	if !beat.IsZero() {
		c.Evidence = append(c.Evidence, Evidence{"heartbeat_at", beat})
	}
	left := l.ExpiresAt.Sub(q.now)
	if left > 0 {
		c.Text = fmt.Sprintf("It runs on %s under token %d, for %s; the lease ends in %s unless renewed.", who, l.FencingToken, spell(q.now.Sub(l.ClaimedAt)), spell(left))
		return c
	}
	c.Text = fmt.Sprintf("%s held it under token %d and let the lease run out %s ago", who, l.FencingToken, spell(-left))
	reaped := instant(q.place.ReapedAt)
	switch silent := q.now.Sub(reaped); {
	case !q.place.Led:
		c.Text += "; no process leads the upkeep, which would take it back."
		c.Help = Help{Code: HelpSystem}
	case reaped.IsZero() || silent > 3*q.pace.Reaper:
		c.Text += "; the reaper, which would take it back, is silent."
		c.Help = Help{Code: HelpSystem}
	default:
		c.Text += "; the reaper takes it back with its next pass, in about " + spell(max(q.pace.Reaper-silent, time.Second)) + "."
	}
	if !reaped.IsZero() {
		c.Evidence = append(c.Evidence, Evidence{"reaper_last_pass_at", reaped})
	}
	if j.Crashes > 0 {
		c.Evidence = append(c.Evidence, Evidence{"crashes", int64(j.Crashes)})
	}
	return c
}

func (q *inquiry) checkWorker() Check {
	var live, serve, know, draining int
	queues, types := map[string]bool{}, map[string]bool{}
	for _, w := range q.workers {
		if w.State != "running" {
			draining++
			continue
		}
		live++
		serve += one(w.Serves)
		know += one(w.Knows)
		for _, name := range w.Queues {
			queues[name] = true
		}
		if len(w.Queues) == 0 {
			queues["*"] = true
		}
		for _, name := range w.Types {
			types[name] = true
		}
	}
	c := Check{Code: CheckWorker, Verdict: Failed, Help: Help{Code: HelpWorkers}, Evidence: []Evidence{{"workers", int64(live)}, {"draining", int64(draining)},
		{"serve_queue", int64(serve)}, {"know_type", int64(know)}, {"queues_served", some(queues)}, {"types_known", some(types)}}}
	queue, jobType := q.job.Queue, q.job.Type
	switch {
	case len(q.could) > 0:
		c.Verdict, c.Help = Passed, Help{}
		c.Text = fmt.Sprintf("%s its queue %s and %s its type %s.", many(len(q.could), "live worker serves", "live workers serve"), queue, pick(len(q.could), "knows", "know"), jobType)
	case live == 0 && draining > 0:
		c.Text = "No worker takes jobs: " + many(draining, "is", "are") + " draining."
	case live == 0:
		c.Text = "No worker is alive."
	case serve == 0:
		c.Text = "No live worker serves its queue " + queue + "."
	case know == 0:
		c.Text = "No live worker has a handler for its type " + jobType + "."
	default:
		c.Text = "No live worker both serves its queue " + queue + " and has a handler for its type " + jobType + "."
	}
	return c
}

func (q *inquiry) checkSlots() Check {
	if len(q.could) == 0 {
		return notApplicable(CheckSlots, "There are no slots for it without a worker.")
	}
	var busy, total, stuck int64
	var longest dbsqlc.ListClaimersRow
	for _, w := range q.could {
		busy, total, stuck = busy+taken(w), total+int64(w.Slots), stuck+int64(w.Stuck)
		if w.Running > 0 && (longest.Running == 0 || w.LongestAt.Before(longest.LongestAt)) {
			longest = w
		}
	}
	c := Check{Code: CheckSlots, Verdict: Passed, Text: fmt.Sprintf("%d of %s for it %s taken.", busy, many(int(total), "slot", "slots"), pick(int(busy), "is", "are")),
		Evidence: []Evidence{{"busy", busy}, {"total", total}}}
	if stuck > 0 {
		c.Evidence = append(c.Evidence, Evidence{"stuck", stuck})
	}
	if slices.ContainsFunc(q.could, idle) {
		return c
	}
	c.Verdict, c.Help = Failed, Help{Code: HelpWorkers}
	c.Text = fmt.Sprintf("All %d slots for it are taken", total)
	if total == 1 {
		c.Text = "The one slot for it is taken"
	}
	if longest.Running > 0 {
		c.Text += ", the longest run began " + spell(q.now.Sub(longest.LongestAt)) + " ago"
		c.Evidence = append(c.Evidence, Evidence{"longest_job_id", longest.LongestJob}, Evidence{"longest_claimed_at", longest.LongestAt.UTC()}, Evidence{"longest_worker", longest.Name})
	}
	c.Text += "."
	return c
}

// checkSuspect: suspects run one after the other on each worker.
func (q *inquiry) checkSuspect() Check {
	if !q.job.Suspect() {
		return Check{Code: CheckSuspect, Verdict: Passed, Text: "It is no suspect: its last run was not lost with its process."}
	}
	after := "Suspect after " + many(q.job.Crashes, "lost run", "lost runs") + ": "
	c := Check{Code: CheckSuspect, Verdict: Failed, Evidence: []Evidence{{"crashes", int64(q.job.Crashes)}}}
	if !q.place.InLine {
		c.Verdict, c.Text = NotApplicable, after+"it runs apart from other jobs once it is in line."
		return c
	}
	c.Evidence = append(c.Evidence, Evidence{"suspects_ahead", q.ahead})
	free := func(w dbsqlc.ListClaimersRow) bool { return idle(w) && w.Suspects == 0 }
	switch {
	case q.ahead > 0:
		c.Text = after + many(int(q.ahead), "other is", "others are") + " ahead, and they run one at a time."
	case slices.ContainsFunc(q.could, idle) && !slices.ContainsFunc(q.could, free):
		c.Text = after + "it waits until the suspects that run now have ended or take long, since each has a process to itself."
		c.Help = Help{Code: HelpWorkers}
	default:
		c.Verdict, c.Text = Passed, after+"it is the next to run alone, in a process of its own."
	}
	return c
}

func (q *inquiry) checkHeld() Check {
	reason := q.job.HeldReason
	if reason == "" {
		return Check{Code: CheckHeld, Verdict: Passed, Text: "Nothing holds it back."}
	}
	c := Check{Code: CheckHeld, Verdict: Failed, Evidence: []Evidence{{"held_reason", reason}, {"held_at", q.place.HeldAt.UTC()}}}
	since := spell(q.now.Sub(q.place.HeldAt))
	switch reason {
	case "no_worker":
		c.Text, c.Help = "Held for "+since+", since no live worker had a handler for its type; it is put back in line within seconds of one.", Help{Code: HelpWorkers}
	case "type_paused":
		c.Text = "Held for " + since + ": its type is paused."
	case "dependency":
		c.Text = "Held for " + since + ": what it depends on does not answer."
	default:
		c.Text = "Held for " + since + ": " + reason + "."
	}
	return c
}

func (q *inquiry) checkAhead() Check {
	switch {
	case !q.place.InLine:
		return notApplicable(CheckAhead, "It does not stand in line.")
	case q.job.Suspect():
		return notApplicable(CheckAhead, "Suspects have a line of their own.")
	}
	c := Check{Code: CheckAhead, Verdict: Passed, Text: "No job is ahead of it.", Evidence: []Evidence{{"queue", q.job.Queue}, {"jobs_ahead", q.ahead}}}
	if q.aheadMore {
		c.Evidence = append(c.Evidence, Evidence{"more", true})
		c.Text = fmt.Sprintf("Of the first %s in line, none is for the workers that take it.", many(AheadCap, "job", "jobs"))
	}
	if q.ahead == 0 {
		return c
	}
	c.Verdict, c.Help = Failed, Help{HelpQueue, q.job.Queue}
	c.Text = many(int(q.ahead), "job is", "jobs are") + " ahead of it"
	if q.aheadMore {
		c.Text = "At least " + c.Text
	}
	if q.perSecond > 0 {
		takes := time.Duration(float64(q.ahead) / q.perSecond * float64(time.Second))
		c.Text += ": about " + spell(takes) + " at " + strconv.FormatFloat(q.perSecond, 'g', 2, 64) + "/s"
		c.Evidence = append(c.Evidence, Evidence{"per_second", q.perSecond}, Evidence{"about", takes})
	} else {
		c.Text += fmt.Sprintf("; no run of this queue has ended within %d min", aheadMinutes)
	}
	c.Text += "."
	return c
}

// checkStart is the last: nothing is in the way, and still the job stands there. It
// is late once it has been so for three times as long as an idle worker sleeps.
func (q *inquiry) checkStart(claimable bool) Check {
	j := &q.job
	switch {
	case !claimable:
		return notApplicable(CheckStart, "Something else is in the way.")
	case !j.ExpiresAt.IsZero() && j.ExpiresAt.Before(q.now):
		return Check{Code: CheckStart, Verdict: Passed, Evidence: []Evidence{{"expires_at", j.ExpiresAt}},
			Text: "It expired " + spell(q.now.Sub(j.ExpiresAt)) + " ago: who claims it ends it without a run."}
	case q.ahead > 0:
		return Check{Code: CheckStart, Verdict: Passed, Text: "Nothing else is in the way: it starts once those ahead of it are taken."}
	}
	poll := q.pace.Poll
	if j.Suspect() {
		poll = max(poll, time.Second)
	}
	since := q.free()
	c := Check{Code: CheckStart, Verdict: Passed, Text: "Nothing is in the way: it should start within " + spell(poll) + ".",
		Evidence: []Evidence{{"poll_interval", q.pace.Poll}, {"free_since_at", since}}}
	if waited := q.now.Sub(since); waited > 3*poll {
		c.Verdict, c.Help = Failed, Help{Code: HelpWorkers}
		c.Text = "Nothing is in the way, yet no worker has taken it for " + spell(waited) + ", though an idle one looks every " + spell(poll) +
			". The workers' logs may say why; if it stays so, please report it."
	}
	return c
}

// free is since when nothing is known to have been in the way: the job was due, the
// queue not paused, a worker with a free slot there, and none has claimed anything
// since, which would show that others were first.
func (q *inquiry) free() time.Time {
	var started, claimed time.Time
	for _, w := range q.could {
		if idle(w) && (started.IsZero() || w.StartedAt.Before(started)) {
			started = w.StartedAt
		}
		claimed = latest(claimed, w.LastClaimAt)
	}
	at := latest(q.place.ReadyAt, started, claimed)
	if q.place.LastAct == "resume" {
		at = latest(at, q.place.LastActAt)
	}
	return at.UTC()
}

func some(names map[string]bool) []string {
	list := slices.Sorted(maps.Keys(names))
	if len(list) > servedListMax {
		list = append(list[:servedListMax:servedListMax], "…")
	}
	return slices.Clip(list)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func pick(n int, single, several string) string {
	if n == 1 {
		return single
	}
	return several
}

// many is a number with what it counts: "1 job", "12 jobs", "10,000 jobs".
func many(n int, single, several string) string {
	figure := strconv.Itoa(n)
	if n >= 1000 {
		figure = fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return figure + " " + pick(n, single, several)
}

// spell is a duration in one unit that fits.
func spell(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d == 0:
		return "0 s"
	case d < 100*time.Millisecond:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " d"
}
