package access

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// ledger does acts, each together with its row of operator_actions.
type ledger struct {
	kind string // of the target, in the trail
	pool *pgxpool.Pool
	q    *dbsqlc.Queries
	log  *slog.Logger
}

func newLedger(kind string, pool *pgxpool.Pool, log *slog.Logger) ledger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return ledger{kind, pool, dbsqlc.New(), log}
}

// act runs do and writes the act's audit row in one transaction, then logs it.
func (l *ledger) act(ctx context.Context, by engine.Actor, action, target string, do func(tx pgx.Tx) (change, error)) error {
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		c, err := do(tx)
		if err != nil {
			return err
		}
		return l.record(ctx, tx, by, action, target, c)
	})
	if err != nil {
		return err
	}
	l.logAct(ctx, by, action, target)
	return nil
}

func (l *ledger) logAct(ctx context.Context, by engine.Actor, action, target string) {
	l.log.InfoContext(ctx, engine.LogOperatorAction, "actor", by.Name, "action", action, "target", target, "reason", by.Reason)
}

// change is what an act did, for its audit row.
type change struct {
	before, after any
	affected      int
}

func (l *ledger) record(ctx context.Context, tx pgx.Tx, by engine.Actor, action, target string, c change) error {
	p := dbsqlc.RecordActionParams{Actor: by.Name, Source: by.Source, Action: action, TargetKind: l.kind, Target: target,
		Reason: optional(by.Reason), Affected: int32(c.affected), RequestID: optional(by.RequestID), Address: optional(by.Address)}
	if p.Source == "" {
		p.Source = "go"
	}
	var err error
	if p.Before, err = asJSON(c.before); err != nil {
		return err
	}
	if p.After, err = asJSON(c.after); err != nil {
		return err
	}
	if _, err := l.q.RecordAction(ctx, tx, p); err != nil {
		return fmt.Errorf("record action %s: %w", action, err)
	}
	return nil
}

func asJSON(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
