//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The files of a run, JSON lines.
const (
	requestsFile = "requests.jsonl" // what producers asked for, and what they know of it
	effectsFile  = "effects.jsonl"  // what handlers did, written by the workers
	eventsFile   = "events.jsonl"   // what was done to the programs
	leadersFile  = "leaders.jsonl"  // who led
)

// trace is a line of the effects.
type trace struct {
	Job    string `json:"job"`
	Token  int64  `json:"token"`
	Worker int64  `json:"worker"`
	PID    int    `json:"pid"`
	Type   string `json:"type"`
	Key    string `json:"key"`
	Event  string `json:"event"`
	Err    string `json:"err"`
	At     int64  `json:"at"`
}

// evidence is what a run is judged by.
type evidence struct {
	pool     *pgxpool.Pool
	requests []request
	traces   []trace
	events   []happened
	leaders  []leader
}

// gather reads every file. Nothing at all in one is as bad as an unreadable one:
// a run without effects would pass every rule about effects.
func gather(dir string, pool *pgxpool.Pool) (*evidence, error) {
	e := &evidence{pool: pool}
	var errs [4]error
	e.requests, errs[0] = readJournal[request](filepath.Join(dir, requestsFile))
	e.traces, errs[1] = readJournal[trace](filepath.Join(dir, effectsFile))
	e.events, errs[2] = readJournal[happened](filepath.Join(dir, eventsFile))
	e.leaders, errs[3] = readJournal[leader](filepath.Join(dir, leadersFile))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if len(e.requests) == 0 || len(e.traces) == 0 {
		return nil, fmt.Errorf("%d requests and %d effects are too little to judge", len(e.requests), len(e.traces))
	}
	return e, nil
}

// The journals as tables, so that a rule is one question over both worlds. jobs
// is the engine's table with what the payload names itself.
const evidenceTables = `
DROP SCHEMA IF EXISTS evidence CASCADE;
CREATE SCHEMA evidence;
CREATE TABLE evidence.requests (id int PRIMARY KEY, door text, outcome text, sent timestamptz, done timestamptz);
CREATE TABLE evidence.wanted (request int, ref text, id uuid, type text, payload jsonb, after_ms bigint, key text);
CREATE TABLE evidence.traces (n int, job uuid, token bigint, worker bigint, pid int, type text, key text, event text, err text, at timestamptz);`

const evidenceIndexes = `
CREATE TABLE evidence.jobs AS SELECT j.id, j.payload->>'ref' AS ref, j.type, j.created_at, s.state, s.last_outcome, d.reason
  FROM jobs AS j JOIN job_states AS s ON s.id = j.id LEFT JOIN dead_letter_jobs AS d ON d.job_id = j.id;
CREATE INDEX ON evidence.jobs (id);
CREATE INDEX ON evidence.jobs (ref);
CREATE INDEX ON evidence.wanted (ref);
CREATE INDEX ON evidence.wanted (id);
CREATE INDEX ON evidence.wanted (request);
CREATE INDEX ON evidence.traces (job, token);
CREATE INDEX ON chaos.effects (job_id);
ANALYZE;`

// store fills the tables.
func (e *evidence) store(ctx context.Context) error {
	if _, err := e.pool.Exec(ctx, "SET statement_timeout = 0; "+evidenceTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("make the tables of evidence: %w", err)
	}
	var requests, jobs, traces [][]any
	for i, r := range e.requests {
		requests = append(requests, []any{i, r.Door, r.Outcome, r.Sent, r.Done})
		for _, w := range r.Jobs {
			var id *uuid.UUID
			if w.ID != "" {
				parsed, err := uuid.Parse(w.ID)
				if err != nil {
					return fmt.Errorf("request %d: %w", i, err)
				}
				id = &parsed
			}
			var payload any
			if w.Payload != nil {
				payload = w.Payload
			}
			jobs = append(jobs, []any{i, w.Ref, id, w.Type, payload, w.After.Milliseconds(), w.Key})
		}
	}
	for i, r := range e.traces {
		id, err := uuid.Parse(r.Job)
		if err != nil {
			return fmt.Errorf("effect %d: %w", i, err)
		}
		traces = append(traces, []any{i, id, r.Token, r.Worker, r.PID, r.Type, r.Key, r.Event, r.Err, time.UnixMicro(r.At)})
	}
	for _, c := range []struct {
		table   string
		columns []string
		rows    [][]any
	}{
		{"requests", []string{"id", "door", "outcome", "sent", "done"}, requests},
		{"wanted", []string{"request", "ref", "id", "type", "payload", "after_ms", "key"}, jobs},
		{"traces", []string{"n", "job", "token", "worker", "pid", "type", "key", "event", "err", "at"}, traces},
	} {
		if _, err := e.pool.CopyFrom(ctx, pgx.Identifier{"evidence", c.table}, c.columns, pgx.CopyFromRows(c.rows)); err != nil {
			return fmt.Errorf("store %s: %w", c.table, err)
		}
	}
	if _, err := e.pool.Exec(ctx, "SET statement_timeout = 0; SET jit = off; "+evidenceIndexes, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("index the evidence: %w", err)
	}
	return nil
}

func mustID(s string) uuid.UUID {
	id, err := uuid.Parse(s)
	if err != nil {
		panic(err) // it was an answer of ours
	}
	return id
}
