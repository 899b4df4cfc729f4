// Package match holds stored jobs against a query of the search language.
package match

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// pathBreak stands between the steps of a payload path on the way to the
// statement: no step may have it, since a query has no control characters.
const pathBreak = "\x1f"

// Keep returns those of ids that match, in their order.
func Keep(ctx context.Context, q *dbsqlc.Queries, db dbsqlc.DBTX, ids []uuid.UUID, m *search.Matcher) ([]uuid.UUID, error) {
	if len(ids) == 0 || len(m.Query.Terms) == 0 {
		return ids, nil
	}
	paths := make([]string, len(m.Needs.Paths))
	for i, p := range m.Needs.Paths {
		paths[i] = strings.Join(p, pathBreak)
	}
	keys := []string{}
	if m.Needs.Keys {
		keys = Keys(m.Query)
	}
	rows, err := q.SearchFacts(ctx, db, dbsqlc.SearchFactsParams{Ids: ids, WantPlace: m.Needs.Place, WantRuns: m.Needs.Runs,
		WantWorkers: m.Needs.Workers, WantError: m.Needs.Error, Keys: keys, Paths: paths})
	if err != nil {
		return nil, err
	}
	kept := make(map[uuid.UUID]bool, len(rows))
	for i := range rows {
		f := factsOf(&rows[i])
		kept[f.ID] = m.Matches(&f)
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return !kept[id] }), nil
}

// Keys are the idempotency keys that a query names, wherever it does.
func Keys(q search.Query) []string {
	keys := []string{}
	for _, t := range q.Terms {
		if t.Name == "key" {
			keys = append(keys, t.Values...)
		}
	}
	return keys
}

func factsOf(r *dbsqlc.SearchFactsRow) search.Facts {
	f := search.Facts{ID: r.ID, Type: r.Type, Queue: r.Queue, Priority: int64(r.Priority), Tags: r.Tags, CreatedAt: r.CreatedAt,
		Place: r.Place, Attempt: int64(r.Attempt), Duration: seconds(r.RunSeconds), Wait: seconds(r.WaitSeconds),
		Workers: r.Workers, Builds: r.Builds, Keys: r.Keys, Error: r.Error, Fingerprint: r.Fingerprint, Payload: r.Payload, Absent: r.Absent}
	if r.FinishedAt.Unix() != 0 {
		f.FinishedAt = r.FinishedAt
	}
	return f
}

// seconds reads what the database tells; below zero it is that there is none.
func seconds(s float64) time.Duration {
	if s < 0 {
		return -1
	}
	return time.Duration(s * float64(time.Second))
}
