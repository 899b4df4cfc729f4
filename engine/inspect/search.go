package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/match"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// SearchFilter asks for jobs in the search language.
type SearchFilter struct {
	Query search.Query
	// Before continues after the job of this id; zero starts at the newest.
	Before engine.ID
	// Limit is 1 to [MaxLimit], default [DefaultLimit].
	Limit int
	// Payloads asks for payloads up to [ListPayloadMax] and errors up to their
	// limit in lists; else payloads are left out and errors are cut to 200 characters.
	Payloads bool
}

const (
	searchStretch = 500 // grows while little is found
	searchMost    = 5_000
	// idSlack is how far an id's own time may be from the job's created_at: ids are
	// made by the clock of whoever enqueues.
	idSlack = 10 * time.Minute
	// causesMost and jobsOfCause bound what a search by fingerprint looks at.
	causesMost  = 2_000
	jobsOfCause = 20_000
)

// Search lists the jobs that match, by descending id. It looks for two seconds at
// most and then answers what it found, with [JobPage.Stopped] set.
func (r *Reader) Search(ctx context.Context, f SearchFilter) (JobPage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s := &searching{r: r, m: search.NewMatcher(f.Query, time.Now()), limit: clampLimit(f.Limit), began: time.Now()}
	if err := s.prepare(ctx, f.Before); err != nil {
		return JobPage{}, fmt.Errorf("search jobs: %w", err)
	}
	found, err := s.walk(ctx)
	if err != nil {
		return JobPage{}, fmt.Errorf("search jobs: %w", err)
	}
	page, ids := JobPage{Stopped: found.stopped}, found.ids
	switch {
	case len(ids) > s.limit:
		ids = ids[:s.limit]
		page.Next = ids[s.limit-1]
	case !found.done:
		page.Next = found.bottom
	}
	payloads, errors := int32(0), int32(consoleErrorMax)
	if f.Payloads {
		payloads, errors = ListPayloadMax, listErrorMax
	}
	if page.Jobs, err = r.jobs(ctx, ids, payloads, errors); err != nil {
		return JobPage{}, fmt.Errorf("search jobs: %w", err)
	}
	if !s.anywhere {
		// A job that moved on between the two reads is no longer what was asked for.
		now := time.Now()
		page.Jobs = slices.DeleteFunc(page.Jobs, func(j Job) bool {
			return !slices.Contains(s.places, j.Place(now)) && !ripened(&j, s.places) || !j.DiscardedAt.IsZero()
		})
	}
	return page, nil
}

// ripened tells of a job that has just come due: its place has not changed yet, or
// by this process's clock it has.
func ripened(j *Job, places []Place) bool {
	return j.State == engine.StatePending && j.HeldReason == "" && (slices.Contains(places, PlaceReady) || slices.Contains(places, PlaceScheduled))
}

// searching is one search under way.
type searching struct {
	r        *Reader
	m        *search.Matcher
	limit    int
	began    time.Time
	places   []Place
	anywhere bool
	narrow   JobFilter
	before   engine.ID
	least    engine.ID // no job below can match; zero if any may
	// all are the only jobs that can match, if the query names something that an
	// index finds; byIndex tells so.
	all     []engine.ID
	byIndex bool
}

func (s *searching) prepare(ctx context.Context, before engine.ID) error {
	states, all := s.m.Query.States()
	s.anywhere = all
	for _, p := range states {
		s.places = append(s.places, Place(p))
	}
	s.before = before
	if s.before == uuid.Nil {
		s.before = uuid.Max
	}
	bounds := s.m.Query.Created(s.m.Now)
	if !bounds.To.IsZero() {
		if most := idAt(bounds.To.Add(idSlack)); descending(most, s.before) > 0 {
			s.before = most
		}
	}
	if !bounds.From.IsZero() {
		s.least = idAt(bounds.From.Add(-idSlack))
	}
	one := func(name string) string {
		if v, ok := s.m.Query.One(name); ok && !strings.HasSuffix(v, "*") {
			return v
		}
		return ""
	}
	s.narrow = JobFilter{Type: one("type"), Queue: one("queue"), Priority: onePriority(s.m.Query)}
	return s.byIndexes(ctx)
}

func onePriority(q search.Query) *engine.Priority {
	for _, t := range q.Terms {
		if t.Name != "priority" || t.Not || len(t.Numbers) != 1 {
			continue
		}
		if n := t.Numbers[0]; n.HasLeast && n.HasMost && n.Least == n.Most && !n.OverLeast && !n.LessMost && n.Least <= 5 {
			p := engine.Priority(n.Least)
			return &p
		}
	}
	return nil
}

// byIndexes finds the jobs of an id, of keys, and of causes without a walk.
func (s *searching) byIndexes(ctx context.Context) error {
	for _, t := range s.m.Query.Terms {
		if t.Not {
			continue
		}
		var ids []engine.ID
		var err error
		switch {
		case t.ID != uuid.Nil:
			ids = []engine.ID{t.ID}
		case t.Name == "key":
			ids, err = jobsOf(s.r.q.JobsOfKeys(ctx, s.r.pool, t.Values))
		case t.Name == "fp":
			ids, err = s.ofCauses(ctx, t.Values)
		default:
			continue
		}
		if err != nil {
			return err
		}
		slices.SortFunc(ids, descending)
		if s.byIndex {
			ids = slices.DeleteFunc(ids, func(id engine.ID) bool { return !slices.Contains(s.all, id) })
		}
		s.all, s.byIndex = slices.Compact(ids), true
	}
	return nil
}

// jobsOf leaves out what has no job.
func jobsOf(found []*uuid.UUID, err error) ([]engine.ID, error) {
	var ids []engine.ID
	for _, id := range found {
		if id != nil {
			ids = append(ids, *id)
		}
	}
	return ids, err
}

func (s *searching) ofCauses(ctx context.Context, wanted []string) ([]engine.ID, error) {
	known, err := s.r.q.ListFingerprints(ctx, s.r.pool, causesMost)
	if err != nil {
		return nil, err
	}
	meant := slices.DeleteFunc(known, func(fp string) bool { return !search.NamesCause(fp, wanted) })
	if len(meant) == 0 {
		return nil, nil
	}
	return s.r.q.JobsOfFingerprints(ctx, s.r.pool, meant, jobsOfCause)
}

// walk holds one stretch of candidates after the other against the query.
func (s *searching) walk(ctx context.Context) (found, error) {
	out, size := found{bottom: s.before}, max(searchStretch, s.limit+1)
	for {
		part, err := s.candidates(ctx, out.bottom, size)
		if err != nil {
			return found{}, err
		}
		if s.least != uuid.Nil && descending(part.bottom, s.least) > 0 {
			part.done = true
		}
		kept, err := match.Keep(ctx, s.r.q, s.r.pool, part.ids, s.m)
		if err != nil {
			return found{}, err
		}
		out.ids = append(out.ids, kept...)
		out.bottom, out.done = part.bottom, part.done
		switch {
		case out.done, len(out.ids) > s.limit:
			return out, nil
		case part.stopped, time.Since(s.began) > scanBudget:
			out.stopped = true
			return out, nil
		}
		size = min(size*2, searchMost)
	}
}

// candidates are the next jobs that may match, at most n.
func (s *searching) candidates(ctx context.Context, before engine.ID, n int) (found, error) {
	if s.byIndex {
		return s.listed(before, n), nil
	}
	f := s.narrow
	f.Before = before
	var part found
	var err error
	if s.anywhere {
		part, err = s.r.scan(ctx, f, n, "")
	} else {
		part, err = s.r.findPlaces(ctx, f, s.places, n)
	}
	if err == nil && len(part.ids) > n {
		part.ids = part.ids[:n]
		part.bottom, part.done = part.ids[n-1], false
	}
	return part, err
}

func (s *searching) listed(before engine.ID, n int) found {
	from, _ := slices.BinarySearchFunc(s.all, before, descending)
	for from < len(s.all) && descending(s.all[from], before) <= 0 {
		from++
	}
	ids := s.all[from:min(from+n, len(s.all))]
	out := found{ids: ids, bottom: before, done: from+n >= len(s.all)}
	if len(ids) > 0 {
		out.bottom = ids[len(ids)-1]
	}
	return out
}

// findPlaces merges what stands in several places.
func (r *Reader) findPlaces(ctx context.Context, f JobFilter, places []Place, n int) (found, error) {
	all := found{done: true, bottom: f.Before}
	for _, p := range places {
		one, err := r.findPlace(ctx, ListFilter{JobFilter: f, Place: p}, n)
		if err != nil {
			return found{}, err
		}
		all.add(one)
	}
	all.settle()
	return all, nil
}

// TimeOf is when a job was created, by its id.
func TimeOf(id engine.ID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
}

// idAt is the least id of a moment.
func idAt(t time.Time) engine.ID {
	var id engine.ID
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}
