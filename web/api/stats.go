package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
	"github.com/reliable-job-engine/reliable-job-engine/web/overview"
)

func (a *API) getStats(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	if p := auth.Caller(c); p.Limited() {
		return p.LimitedTo("The overview tells of every queue.")
	}
	o, err := a.Overview.Overview(c.Request().Context())
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, statsOf(o))
}

func statsOf(o overview.Overview) statsJSON {
	s := statsJSON{At: stamp(o.At)}
	s.Verdict = verdictJSON{Level: string(o.Verdict.Level), Text: o.Verdict.Text, Cause: o.Verdict.Cause, Since: stamp(o.Verdict.Since), Also: o.Verdict.Also}
	if s.Verdict.Also == nil {
		s.Verdict.Also = []string{}
	}
	s.Flow.PerMinute = flowRatesJSON{Enqueued: tenth(o.Flow.Enqueued), Completed: tenth(o.Flow.Completed), Ended: tenth(o.Flow.Ended)}
	if !o.Flow.Uncounted {
		s.Flow.Backlog15 = &o.Flow.Backlog
	}
	s.Failing = failingJSON{
		Runs5: o.Failing.Runs5, Failed5: o.Failing.Failed5, Runs60: o.Failing.Runs60, Failed60: o.Failing.Failed60,
		Groups: make([]failureGroupJSON, len(o.Failing.Groups)),
	}
	for i, g := range o.Failing.Groups {
		s.Failing.Groups[i] = failureGroupJSON{
			failureJSON: failureJSON{Class: g.Class, Message: g.Message, Fingerprint: g.Fingerprint}, Type: g.Type, Queue: g.Queue, N: g.N, Recent: g.Recent, FirstAt: stamp(g.FirstAt),
		}
	}
	s.Stuck = stuckJSON{Target: seconds(o.Stuck.Target), Queues: make([]stuckQueueJSON, len(o.Stuck.Queues))}
	for i := range o.Stuck.Queues {
		s.Stuck.Queues[i] = stuckOf(&o.Stuck.Queues[i])
	}
	s.Workers = fleetOf(o.Workers)
	s.Changed = make([]changeJSON, len(o.Changed))
	for i, e := range o.Changed {
		s.Changed[i] = changeJSON{At: stamp(e.At), Action: e.Action, Kind: e.TargetKind, Target: e.Target, By: e.By, Source: e.Source, Reason: e.Reason}
	}
	s.Dead = deadTallyJSON{Total: o.Dead.Total, LastHour: o.Dead.LastHour}
	return s
}

func stuckOf(q *inspect.Queue) stuckQueueJSON {
	out := stuckQueueJSON{queueJSON: queueOf(*q)}
	if d, ok := overview.Drain(q); ok {
		out.Drain = secondsOf(d.Round(time.Second))
	}
	return out
}

func fleetOf(w overview.Workers) fleetJSON {
	f := fleetJSON{
		Live: w.Fleet.ByStatus[inspect.WorkerLive], Late: w.Fleet.ByStatus[inspect.WorkerLate], Lost: w.Fleet.ByStatus[inspect.WorkerLost],
		Draining: w.Fleet.ByStatus[inspect.WorkerDraining], Reaped15: w.Reaped15,
	}
	f.Slots.Busy, f.Slots.Total, f.Slots.Stuck = w.Fleet.Busy, w.Fleet.Slots, w.Fleet.Stuck
	f.Passes = map[string]seconds{}
	for _, t := range w.Tasks {
		if !t.LastSuccessAt.IsZero() {
			f.Passes[t.Name] = seconds(t.Age)
		}
	}
	return f
}
