package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// askEvery is how often a [Watch] asks whether a check is due. A new leader
// takes over the rhythm of the one before, since the last check is in the database.
const askEvery = time.Minute

// Watch checks the history again and again while this process leads, and keeps
// what it found in the table integrity_checks, for the console and the metrics.
type Watch struct {
	Pool *pgxpool.Pool
	// Leads tells whether this process does the upkeep. Two that think so check
	// twice, which does no harm.
	Leads func() bool
	// Every is the time between two checks.
	Every   time.Duration
	Options Options
	Log     *slog.Logger
}

// Run checks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	pause := time.NewTicker(askEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if !w.Leads() {
			continue
		}
		if err := w.CheckIfDue(ctx); err != nil && ctx.Err() == nil {
			w.Log.ErrorContext(ctx, "integrity check failed", "error", err.Error())
		}
	}
}

// CheckIfDue checks, unless the last check is younger than Every, and stores and
// logs what it found. Its error says why a result could not be stored; one that
// could not be checked is a result.
func (w *Watch) CheckIfDue(ctx context.Context) error {
	q := dbsqlc.New()
	due, err := q.IntegrityCheckDue(ctx, w.Pool, w.Every.Seconds())
	if err != nil || !due {
		return err
	}
	r, problem := Run(ctx, w.Pool, w.Options)
	if ctx.Err() != nil {
		return ctx.Err() // the process ends: no finding
	}
	w.tell(ctx, r, problem)
	report, err := r.notOK()
	if err != nil {
		return err
	}
	err = q.StoreIntegrityCheck(ctx, w.Pool, int32(min(r.Took.Milliseconds(), 1<<31-1)), string(r.Verdict()), int32(len(r.Results)), r.names(Violated),
		r.names(Unchecked), report)
	if err != nil {
		return fmt.Errorf("store the integrity check: %w", err)
	}
	return nil
}

func (w *Watch) tell(ctx context.Context, r Report, problem error) {
	l := w.Log.With("rules", len(r.Results), "took_ms", r.Took.Milliseconds())
	switch r.Verdict() {
	case Violated:
		l.ErrorContext(ctx, "integrity check: rules are violated", "violated", r.names(Violated))
	case Unchecked:
		l.WarnContext(ctx, "integrity check: rules could not be checked", "unchecked", r.names(Unchecked), "error", fmt.Sprint(problem))
	case OK:
		l.InfoContext(ctx, "integrity check: every rule holds")
	}
}

func (r Report) names(v Verdict) []string {
	list := []string{}
	for _, res := range r.Results {
		if res.Verdict == v {
			list = append(list, res.Rule.Name)
		}
	}
	return list
}

// notOK is the report as stored: the rules that are not ok.
func (r Report) notOK() ([]byte, error) {
	type finding struct {
		Rule      string     `json:"rule"`
		Verdict   Verdict    `json:"verdict"`
		Problem   string     `json:"problem,omitempty"`
		Offenders []Offender `json:"offenders,omitempty"`
		More      bool       `json:"more,omitempty"`
	}
	list := []finding{}
	for _, res := range r.Results {
		if res.Verdict != OK {
			list = append(list, finding{res.Rule.Name, res.Verdict, res.Problem, res.Offenders, res.More})
		}
	}
	return json.Marshal(list)
}
