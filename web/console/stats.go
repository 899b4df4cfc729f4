package console

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

const hour = 60 // minutes of a pulse

// line is the last hour of one queue, one type, or all, minute by minute. The last
// minute is the one that is running.
type line struct {
	completed, failed, ended [hour]float64
	wait, run                []int64 // by inspect.BucketBounds
	wait5                    []int64
	runs5, failed5           int64
	runs60, failed60         int64
	reaped5, reaped15        int64
	waits                    [hour][]int64
}

func newLine() *line {
	n := len(inspect.BucketBounds) + 1
	return &line{wait: make([]int64, n), run: make([]int64, n), wait5: make([]int64, n)}
}

func (l *line) add(i int, m *inspect.Minute) {
	recent := i >= hour-5
	switch m.Outcome {
	case engine.OutcomeCompleted:
		l.completed[i] += float64(m.N)
	case engine.OutcomeFailed, engine.OutcomeTimedOut, engine.OutcomeCrashed, engine.OutcomeLeaseExpired:
		l.failed[i] += float64(m.N)
		l.failed60 += m.N
		if recent {
			l.failed5 += m.N
		}
	case engine.OutcomeSnoozed, engine.OutcomeHandedBack, engine.OutcomeCancelled, engine.OutcomeExpired:
		return // no run that shows how things work
	}
	if m.Outcome == engine.OutcomeLeaseExpired || m.Outcome == engine.OutcomeCrashed {
		if recent {
			l.reaped5 += m.N
		}
		if i >= hour-15 {
			l.reaped15 += m.N
		}
	}
	l.ended[i] += float64(m.N)
	l.runs60 += m.N
	if recent {
		l.runs5 += m.N
	}
	if l.waits[i] == nil {
		l.waits[i] = make([]int64, len(l.wait))
	}
	for b, n := range m.WaitBuckets {
		l.wait[b] += n
		l.waits[i][b] += n
		if recent {
			l.wait5[b] += n
		}
	}
	for b, n := range m.RunBuckets {
		l.run[b] += n
	}
}

// stats is the last hour taken apart by queue and by type.
type stats struct {
	all        *line
	queues     map[string]*line
	types      map[string]*line
	typeQueues map[string]map[string]bool
	pairs      map[[2]string]*line // queue, type
}

func newStats(p *inspect.Pulse) *stats {
	s := &stats{
		all: newLine(), queues: map[string]*line{}, types: map[string]*line{}, typeQueues: map[string]map[string]bool{}, pairs: map[[2]string]*line{},
	}
	first := p.FirstMinute()
	for i := range p.Minutes {
		m := &p.Minutes[i]
		at := int(m.Minute.Sub(first) / time.Minute)
		if at < 0 || at >= hour {
			continue
		}
		s.all.add(at, m)
		lineAt(s.queues, m.Queue).add(at, m)
		lineAt(s.types, m.Type).add(at, m)
		lineAt(s.pairs, [2]string{m.Queue, m.Type}).add(at, m)
		if s.typeQueues[m.Type] == nil {
			s.typeQueues[m.Type] = map[string]bool{}
		}
		s.typeQueues[m.Type][m.Queue] = true
	}
	return s
}

func lineAt[K comparable](m map[K]*line, key K) *line {
	l := m[key]
	if l == nil {
		l = newLine()
		m[key] = l
	}
	return l
}

func (s *stats) queue(name string) *line {
	if l := s.queues[name]; l != nil {
		return l
	}
	return newLine()
}

func (s *stats) typ(name string) *line {
	if l := s.types[name]; l != nil {
		return l
	}
	return newLine()
}

// percentile is read off histogram buckets, straight within one; ok is false
// without any value. What lies beyond the last bound is said to be that bound.
func percentile(buckets []int64, p float64) (d time.Duration, ok bool) {
	var all int64
	for _, n := range buckets {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	rank, seen := p*float64(all), 0.0
	for i, n := range buckets {
		if n == 0 || seen+float64(n) < rank {
			seen += float64(n)
			continue
		}
		if i >= len(inspect.BucketBounds) {
			break
		}
		low := time.Duration(0)
		if i > 0 {
			low = inspect.BucketBounds[i-1]
		}
		part := (rank - seen) / float64(n)
		return low + time.Duration(part*float64(inspect.BucketBounds[i]-low)), true
	}
	return inspect.BucketBounds[len(inspect.BucketBounds)-1], true
}

func percentileText(buckets []int64, p float64) string {
	d, ok := percentile(buckets, p)
	if !ok {
		return ""
	}
	return span(d)
}

// dead is the dead letters that are not discarded.
func (f *figures) dead() int64 {
	var n int64
	for _, d := range f.snap.Dead {
		n += d.N
	}
	return n
}

func (f *figures) deadOf(match func(inspect.DeadCount) bool) int64 {
	var n int64
	for _, d := range f.snap.Dead {
		if match(d) {
			n += d.N
		}
	}
	return n
}

func (f *figures) queue(name string) *inspect.Queue {
	i := slices.IndexFunc(f.snap.Queues, func(q inspect.Queue) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return &f.snap.Queues[i]
}

func (f *figures) queueNames() []string {
	names := make([]string, len(f.snap.Queues))
	for i, q := range f.snap.Queues {
		names[i] = q.Name
	}
	return names
}

// typeNames are the types that have run within the hour or have died.
func (f *figures) typeNames() []string {
	known := map[string]bool{}
	for t := range f.stats.types {
		known[t] = true
	}
	for _, d := range f.snap.Dead {
		known[d.Type] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// depth adds up the jobs of all queues, or of one.
func (f *figures) depth(queue string) inspect.Depth {
	var sum inspect.Depth
	for _, q := range f.snap.Queues {
		if queue != "" && q.Name != queue {
			continue
		}
		sum.Ready += q.Depth.Ready
		sum.Scheduled += q.Depth.Scheduled
		sum.Running += q.Depth.Running
		sum.Retrying += q.Depth.Retrying
		sum.Held += q.Depth.Held
		sum.Dead += q.Depth.Dead
	}
	return sum
}

func (f *figures) task(name string) *inspect.Task {
	i := slices.IndexFunc(f.snap.Tasks, func(t inspect.Task) bool { return t.Name == name })
	if i < 0 || f.snap.Tasks[i].LastSuccessAt.IsZero() {
		return nil
	}
	return &f.snap.Tasks[i]
}

// enqueued is the new jobs by minute, a gap where they were not counted.
func (f *figures) enqueued() []float64 {
	out := make([]float64, len(f.pulse.Enqueued))
	for i, n := range f.pulse.Enqueued {
		out[i] = float64(n)
		if n < 0 {
			out[i] = math.NaN()
		}
	}
	return out
}

// closedMinutes leaves out the minute that is running: it would always look like
// a fall.
func closedMinutes(values []float64) []float64 { return values[:len(values)-1] }

// minuteLabel is the time of a point: i minutes after the first.
func minuteLabel(p *inspect.Pulse, i int) string {
	return p.FirstMinute().Add(time.Duration(i) * time.Minute).Format("15:04")
}

// sparkText says in a sentence what a drawing shows.
func sparkText(what string, values []float64) string {
	if len(values) == 0 {
		return what + ": no data"
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 1) {
		return what + ": no data"
	}
	last := values[len(values)-1]
	if math.IsNaN(last) {
		last = 0
	}
	return what + " per minute over the last hour: " + number(last) + " now, between " + number(low) + " and " + number(high)
}

func number(v float64) string { return strconv.FormatFloat(math.Round(v), 'f', -1, 64) }

func sparkOf(state views.State, what string, values []float64) *views.Spark {
	return &views.Spark{State: state, Label: sparkText(what, values), Values: values}
}
