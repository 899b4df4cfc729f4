package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

func actionsOf(rows []dbsqlc.ListAuditRow) []Action {
	list := make([]Action, len(rows))
	for i, x := range rows {
		list[i] = Action{
			ID: x.ID, At: x.At.UTC(), Actor: x.Actor, Source: x.Source, Action: x.Action, TargetKind: x.TargetKind, Target: x.Target,
			Reason: x.Reason, RequestID: x.RequestID, Address: x.Address, Before: rawJSON(x.Before), After: rawJSON(x.After),
			Affected: int(x.Affected),
		}
	}
	return list
}

// AuditFilter chooses entries of the trail. Actor and Target match from their
// beginning; empty fields ask for everything.
type AuditFilter struct {
	Actor, Action, Source, Target string
	// Since and Until bound the time, Until outside.
	Since, Until time.Time
	Before       int64 // continues after the entry of this id; 0 starts at the newest
	Limit        int
}

// auditStretch is how many entries are looked at in one statement.
const auditStretch = 20_000

// Audit lists what people, tokens and programs did, newest first. next is the
// Before of the next page, 0 at the end. A page with less than its limit and a next
// has looked for as long as it may: the search goes on from there.
func (r *Reader) Audit(ctx context.Context, f AuditFilter) (list []Action, next int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list, next, err = r.audit(ctx, f)
	if err != nil {
		return nil, 0, fmt.Errorf("list audit trail: %w", err)
	}
	return list, next, nil
}

func (r *Reader) audit(ctx context.Context, f AuditFilter) (list []Action, next int64, err error) {
	limit := clampLimit(f.Limit)
	first, before, err := r.auditBounds(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	for began := time.Now(); before > first; {
		floor := max(first, before-auditStretch)
		rows, err := r.q.ListAudit(ctx, r.pool, dbsqlc.ListAuditParams{BeforeID: before, FloorID: floor, Source: filter(f.Source), Since: timeFilter(f.Since),
			Until: timeFilter(f.Until), Actor: filter(f.Actor), Action: filter(f.Action), Target: filter(f.Target), MaxRows: int32(limit + 1 - len(list))})
		if err != nil {
			return nil, 0, err
		}
		list = append(list, actionsOf(rows)...)
		if len(list) > limit {
			return list[:limit], list[limit-1].ID, nil
		}
		if before = floor; before > first && time.Since(began) > scanBudget {
			return list, before, nil
		}
	}
	return list, 0, nil
}

// auditBounds are the first id to look at and the one after the last.
func (r *Reader) auditBounds(ctx context.Context, f AuditFilter) (first, before int64, err error) {
	b, err := r.q.AuditBounds(ctx, r.pool, timeFilter(f.Since), timeFilter(f.Until))
	if err != nil || b.LastID == 0 {
		return 0, 0, err
	}
	if before = b.LastID + 1; f.Before > 0 {
		before = min(before, f.Before)
	}
	return b.FirstID, before, nil
}

func timeFilter(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
