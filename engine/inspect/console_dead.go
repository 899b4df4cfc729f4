package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// MaxGroups bounds the groups of [Reader.DeadGroups].
const MaxGroups = 200

// GroupSort orders groups of dead letters.
type GroupSort string

// The orders, each the largest or latest first.
const (
	GroupsByLast  GroupSort = "last"
	GroupsByFirst GroupSort = "first"
	GroupsByCount GroupSort = "count"
)

// DeadGroup is the dead letters with one fingerprint, discarded ones left out.
type DeadGroup struct {
	Failure         // of the newest, its message cut to 500 characters
	N               int64
	FirstAt, LastAt time.Time // deaths
	FirstFailedAt   time.Time // the first failure with this fingerprint
	Types, Queues   []string
	Reasons         []engine.Reason
	Sample          engine.ID // the newest
	Build           string    // that the newest died on
	Hours           [24]int64 // deaths per hour, the last one running
}

// GroupFilter chooses groups. Empty fields ask for everything.
type GroupFilter struct {
	Type, Queue, Fingerprint string
	Queues                   []string  // any of them; nil is every queue
	Sort                     GroupSort // default [GroupsByLast]
	Limit                    int       // 1 to [MaxGroups], default [MaxGroups]
}

// deaths are the queues whose deaths are drawn.
func (f GroupFilter) deaths() []string {
	if f.Queue != "" {
		return []string{f.Queue}
	}
	return f.Queues
}

// DeadGroups groups the newest 100,000 dead letters by fingerprint.
func (r *Reader) DeadGroups(ctx context.Context, f GroupFilter) ([]DeadGroup, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if f.Limit <= 0 || f.Limit > MaxGroups {
		f.Limit = MaxGroups
	}
	rows, err := r.q.ListDeadGroups(ctx, r.pool, dbsqlc.ListDeadGroupsParams{
		Type: filter(f.Type), Queue: filter(f.Queue), Queues: f.Queues, Fingerprint: filter(f.Fingerprint), ScanMax: deathScan, ErrorMax: listErrorMax,
		Sort: string(f.Sort), MaxGroups: int32(f.Limit),
	})
	if err != nil {
		return nil, fmt.Errorf("list groups of dead letters: %w", err)
	}
	list, at, prints := make([]DeadGroup, len(rows)), map[string]int{}, make([]string, len(rows))
	for i, x := range rows {
		list[i] = DeadGroup{
			Failure: Failure{Class: x.ErrorClass, Message: x.Error, Fingerprint: x.Fingerprint}, N: x.N, FirstAt: x.FirstAt.UTC(),
			LastAt: x.LastAt.UTC(), FirstFailedAt: x.FirstFailedAt.UTC(), Types: x.Types, Queues: x.Queues, Sample: x.Sample, Build: x.Build,
		}
		for _, reason := range x.Reasons {
			list[i].Reasons = append(list[i].Reasons, engine.Reason(reason))
		}
		at[x.Fingerprint], prints[i] = i, x.Fingerprint
	}
	hours, err := r.q.CountDeathsByHour(ctx, r.pool, time.Now(), prints, f.deaths())
	if err != nil {
		return nil, fmt.Errorf("count deaths by hour: %w", err)
	}
	for _, h := range hours {
		if i, ok := at[h.Fingerprint]; ok && h.HoursAgo >= 0 && h.HoursAgo < 24 {
			list[i].Hours[23-h.HoursAgo] += h.N
		}
	}
	return list, nil
}

// FailuresOf counts the failed runs of one fingerprint since an instant, up to
// [TabCap].
func (r *Reader) FailuresOf(ctx context.Context, fingerprint string, since time.Time) (int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	n, err := r.q.CountFailuresOf(ctx, r.pool, fingerprint, since, TabCap)
	if err != nil {
		return 0, fmt.Errorf("count failures of %s: %w", fingerprint, err)
	}
	return n, nil
}
