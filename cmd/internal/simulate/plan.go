package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// place is where a job stands at the end.
type place uint8

const (
	completed place = iota
	cancelled
	ready
	scheduled
	held
	running
	retrying
	dead
	discarded
)

// lot is what becomes of one job. anchor is the instant, before now, at which its
// last run was claimed; for a job without a run, that of its creation; for one that
// died, of its death.
type lot struct {
	anchor         time.Duration
	number         uint32 // which of all: decides its chances
	line           uint8
	place          place
	cause          causeID
	lost, replayed bool
}

// Lines of the plan's own chances. Jobs use their number plus jobStream.
const (
	planStream = 1
	jobStream  = 1 << 32
)

// newPlan deals the lots, in order of time.
func newPlan(o Options) []lot {
	r := rand.New(rand.NewPCG(o.Seed, planStream))
	lots := make([]lot, 0, o.Jobs)
	for i := range present {
		g := &present[i]
		if g.incident && o.Scenario != "incident" {
			continue
		}
		n := min(g.size(o.Jobs), o.Jobs-len(lots))
		for j := range n {
			lots = append(lots, lot{
				anchor: g.to + time.Duration(r.Int64N(int64(g.from-g.to))), line: lineOf(g.jobType), place: g.place, cause: g.cause,
				lost: j < share(g.lost, n, g.count), replayed: j >= g.lost && j < g.lost+share(g.replayed, n, g.count),
			})
		}
	}
	lastHour := min((o.Jobs-len(lots))*55/100, 60_000)
	for rest := o.Jobs - len(lots); rest > 0; rest-- {
		lots = append(lots, lotCompleted(r, o, rest <= lastHour))
	}
	for i := range lots {
		lots[i].number = uint32(i)
	}
	slices.SortFunc(lots, func(a, b lot) int { return cmp.Or(cmp.Compare(b.anchor, a.anchor), cmp.Compare(a.number, b.number)) })
	return lots
}

// share is a part of count, less where n is less.
func share(part, n, count int) int { return part * min(n, count) / count }

var allWeights = func() (sum int) {
	for i := range lines {
		sum += lines[i].weight
	}
	return sum
}()

func lotCompleted(r *rand.Rand, o Options, recent bool) lot {
	l := lot{place: completed}
	for w := r.IntN(allWeights); ; l.line++ {
		if w -= lines[l.line].weight; w < 0 {
			break
		}
	}
	from, to := history, hour
	if recent {
		from, to = hour, 0
	}
	// What is slow ends before now.
	to += 3*lines[l.line].took + time.Second
	if o.Scenario == "incident" && recent {
		switch {
		case lines[l.line].jobType == "charge":
			to = gatewayBroke + 3*time.Second
		case lines[l.line].queue == "mail":
			to = mailPaused
		}
	}
	l.anchor = to + time.Duration(r.Int64N(int64(from-to)))
	return l
}
