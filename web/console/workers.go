package console

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// workerRank puts those in trouble first.
var workerRank = map[inspect.WorkerStatus]int{
	inspect.WorkerLost: 0, inspect.WorkerLate: 1, inspect.WorkerDraining: 2, inspect.WorkerLive: 3, inspect.WorkerStopped: 4,
}

func (k *Console) workers(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	list, err := k.readWorkers(c.Request().Context(), k.caller(c))
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := views.Workers{Frame: v.frame("Workers", "workers", true), Strip: v.workerStrip(list), Stale: v.stale()}
	slices.SortStableFunc(list, func(a, b inspect.Worker) int { return workerRank[a.Status] - workerRank[b.Status] })
	for i := range list {
		if i == 300 {
			break
		}
		m.Rows = append(m.Rows, v.workerRow(&list[i]))
	}
	m.Empty = &views.Empty{
		Title: "No worker has started yet.", Text: "Start one, and it stands here with its first heartbeat.", Commands: []string{"make run-worker"},
	}
	return v.page(http.StatusOK, m.Frame, views.WorkersPage(m), views.WorkersLive(m))
}

func (v *visit) workerStrip(list []inspect.Worker) []views.Figure {
	by := map[inspect.WorkerStatus]int64{}
	var slots, busy, stuck int64
	for i := range list {
		w := &list[i]
		by[w.Status]++
		if w.Status.Alive() {
			slots, busy, stuck = slots+int64(w.Slots), busy+int64(w.Busy), stuck+int64(w.Stuck)
		}
	}
	figure := func(name string, n int64, tone views.Tone) views.Figure {
		if n == 0 {
			tone = ""
		}
		return views.Figure{Name: name, Value: text(count(n)), Tone: tone}
	}
	strip := []views.Figure{
		figure("Live", by[inspect.WorkerLive], ""), figure("Late", by[inspect.WorkerLate], views.ToneWarn),
		figure("Lost", by[inspect.WorkerLost], views.ToneUp), figure("Draining", by[inspect.WorkerDraining], views.ToneHush),
		{Name: "Slots busy", Value: text(count(busy) + " of " + count(slots))},
	}
	if stuck > 0 {
		strip = append(strip, figure("Slots stuck", stuck, views.ToneUp))
	}
	if v.figures != nil {
		strip = append(strip, views.Figure{Name: "Runs lost, 15 min", Value: toned(v.figures.stats.all.reaped15, views.ToneUp)},
			views.Figure{Name: "Last reaper pass", Value: passOf(v.figures.task("reaper"), 3*v.k.ReaperInterval)})
	}
	return strip
}

func (v *visit) workerRow(w *inspect.Worker) views.WorkerRow {
	r := views.WorkerRow{
		ID: strconv.FormatInt(w.ID, 10), Name: w.Name, Href: v.k.url("/workers/" + strconv.FormatInt(w.ID, 10)),
		Host: w.Hostname + ", pid " + strconv.Itoa(w.PID), State: workerStates[w.Status], Queues: joinedOr(w.Queues, "all"), Types: joinedOr(w.Types, "none"),
		Slots:     views.Meter{Busy: int64(w.Busy), Total: int64(w.Slots), Text: strconv.Itoa(w.Busy) + " of " + strconv.Itoa(w.Slots)},
		Heartbeat: v.clock.past(w.HeartbeatAt), Build: w.Build, Started: v.clock.past(w.StartedAt),
	}
	if w.Status.Alive() {
		r.PerMinute = count(int64(w.DonePerMinute))
	}
	r.Failed = count(int64(w.FailedLately))
	// As in the verdict: more than a twentieth of what it ran, if that says anything.
	if ran := 15*w.DonePerMinute + w.FailedLately; ran >= 20 && 20*w.FailedLately > ran {
		r.FailedTone = views.ToneUp
	}
	if w.Stuck > 0 {
		r.Stuck = strconv.Itoa(w.Stuck) + " stuck"
	}
	switch w.Status {
	case inspect.WorkerLate:
		r.BeatTone = views.ToneWarn
	case inspect.WorkerLost:
		r.BeatTone = views.ToneUp
		n := &views.Notice{State: views.StateLost, Title: "Lost " + agoText(w.HeartbeatAge) + "."}
		if v.figures != nil && v.figures.pulse.Lost[w.ID] > 0 {
			n.Text = text(plural(v.figures.pulse.Lost[w.ID], "job") + " taken back from it within a day.")
		}
		r.Note = n
	case inspect.WorkerLive, inspect.WorkerDraining, inspect.WorkerStopped:
	}
	return r
}

func joinedOr(list []string, none string) string {
	if len(list) == 0 || len(list) == 1 && list[0] == "*" {
		return none
	}
	return cut(joined(list), 200)
}

func (k *Console) worker(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	s, err := param(c, "id")
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 || strconv.FormatInt(id, 10) != s {
		return notFound("No worker has the id " + quoted(s) + ".")
	}
	ctx := c.Request().Context()
	w, err := k.Read.Worker(ctx, id)
	if err == nil && !ownWorker(&w, k.caller(c)) {
		err = inspect.ErrWorkerNotFound
	}
	if errors.Is(err, inspect.ErrWorkerNotFound) {
		return notFound("No worker has the id " + s + ". Rows of stopped workers are removed after a day.")
	}
	if err != nil {
		return err
	}
	running, err := k.Read.WorkerRunning(ctx, id, 200)
	if err != nil {
		return err
	}
	recent, err := k.Read.WorkerRecent(ctx, id, 30)
	if err != nil {
		return err
	}
	leader, err := k.Read.Leader(ctx)
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := v.workerOf(&w, ownRuns(running, v.who), ownRuns(recent, v.who))
	m.Leader = leader != nil && leader.Live && leader.WorkerID == id
	return v.page(http.StatusOK, m.Frame, views.WorkerPage(m), views.WorkerLive(m))
}

func (v *visit) workerOf(w *inspect.Worker, running, recent []inspect.Run) views.Worker {
	m := views.Worker{
		Frame: v.frame("Worker "+w.Name, "workers", true), Crumbs: []views.Crumb{{Text: "Workers", Href: v.k.url("/workers")}, {Text: w.Name}}, Row: v.workerRow(w),
	}
	m.Strip = []views.Figure{
		{Name: "Slots busy", Value: text(m.Row.Slots.Text)}, {Name: "Jobs held", Value: text(count(int64(len(running))))},
		{Name: "Heartbeat", Value: []views.Span{{At: m.Row.Heartbeat}}, Tone: m.Row.BeatTone},
		{Name: "Lease", Value: text(span(w.Lease))}, {Name: "Started", Value: []views.Span{{At: m.Row.Started}}},
	}
	m.Facts = []views.Fact{
		{Name: "Id", Value: text(m.Row.ID), Copy: m.Row.ID}, {Name: "Host", Value: text(w.Hostname)}, {Name: "Process", Value: text(strconv.Itoa(w.PID))},
		{Name: "Build", Value: text(w.Build)}, {Name: "Queues", Value: text(m.Row.Queues)}, {Name: "Types", Value: text(m.Row.Types)},
	}
	if !w.StoppedAt.IsZero() {
		m.Facts = append(m.Facts, views.Fact{Name: "Stopped", Value: []views.Span{{At: v.clock.past(w.StoppedAt)}}})
	}
	if w.Stuck > 0 {
		m.Notices = append(m.Notices, views.Notice{
			State: views.StateLate, Title: plural(int64(w.Stuck), "slot") + " stuck.", Text: text("Their handlers ignored the end of their context; only a restart frees them."),
		})
	}
	for i := range running {
		r := v.runRow(&running[i])
		r.Prefetch = i >= w.Slots
		m.Running = append(m.Running, r)
	}
	for i := range recent {
		m.Recent = append(m.Recent, v.runRow(&recent[i]))
	}
	return m
}

func (v *visit) runRow(r *inspect.Run) views.RunRow {
	began := r.StartedAt
	if began.IsZero() {
		began = r.ClaimedAt
	}
	row := views.RunRow{
		Job: views.Link{Text: shortID(r.JobID), Href: v.k.url("/jobs/" + r.JobID.String())}, ID: r.JobID.String(), Type: r.Type, Queue: r.Queue,
		Attempt: strconv.Itoa(r.Attempt) + " of " + strconv.Itoa(r.MaxAttempts), Token: strconv.FormatInt(r.FencingToken, 10), Started: v.clock.past(began),
		Outcome: "running", Error: errorLine(&inspect.Failure{Class: r.ErrorClass, Message: r.Error}),
	}
	switch {
	case r.Outcome == 0:
		row.Ran, row.Lease = span(max(v.clock.now.Sub(began), 0)), v.clock.due(r.LeaseExpiresAt)
	default:
		row.Outcome = views.Outcome(r.Outcome.String())
		if !began.IsZero() {
			row.Ran = span(max(r.FinishedAt.Sub(began), 0))
		}
	}
	return row
}
