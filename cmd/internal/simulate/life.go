package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// quantum is how long one worker's claims share a token: they are one batch then.
const quantum = time.Second

// run is one claim of a job and how it ended.
type run struct {
	token                           int64
	worker                          int // place in the fleet
	due, claimed, started, finished time.Time
	attempt                         int
	outcome                         engine.Outcome
	cause                           causeID
}

func (r *run) wait() time.Duration { return max(r.started.Sub(r.due), 0) }

// life is a job's way, put together from its end: the last run's claim is where the
// plan wants it, and each run before it ends before the next one was due.
type life struct {
	w     *world
	r     *rand.Rand
	lot   lot
	line  *line
	max   int   // attempts
	runs  []run // the last first, until settle
	open  bool  // the last run goes on
	crash int
}

func scale(d time.Duration, f float64) time.Duration { return time.Duration(float64(d) * f) }

// took draws how long a good run takes: log-normal around the line's usual time.
func (l *life) took() time.Duration {
	return min(scale(l.line.took, math.Exp(0.5*l.r.NormFloat64())), 3*l.line.took)
}

// waits draws how long a due job waits for a slot.
func (l *life) waits(at time.Time) time.Duration {
	before := l.w.now.Sub(at)
	if l.w.incident && l.line.crew == billingCrew && before < gatewayBroke {
		late := float64(gatewayBroke-before) / float64(gatewayBroke) // slots are busy for 10 s each
		return scale(161*time.Second, late*(0.6+0.4*l.r.Float64())*0.5) + 20*time.Millisecond
	}
	return 3*time.Millisecond + scale(35*time.Millisecond, l.r.ExpFloat64())
}

// claim puts a run before those that are there. It is claimed up to two seconds
// before at, by a worker of the line's crew.
func (l *life) claim(at time.Time, outcome engine.Outcome, c causeID, took time.Duration) *run {
	return l.claimBy(l.w.fleet.pick(l.line.crew, l.w.now.Sub(at), l.lot.number), at, outcome, c, took)
}

func (l *life) claimBy(worker int, at time.Time, outcome engine.Outcome, c causeID, took time.Duration) *run {
	n := int64(at.Sub(l.w.start)/quantum) - 1
	claimed := l.w.start.Add(time.Duration(n)*quantum + time.Duration(mix(l.w.seed, uint64(n)*fleetWidth+uint64(worker))%1000)*time.Millisecond)
	started := claimed.Add(time.Duration(1+l.r.IntN(20)) * time.Millisecond)
	l.runs = append(l.runs, run{
		token: l.w.token(n, worker), worker: worker, claimed: claimed, started: started, finished: started.Add(took),
		due: claimed.Add(-l.waits(at)), outcome: outcome, cause: c,
	})
	return &l.runs[len(l.runs)-1]
}

// mix turns two numbers into one that looks drawn (splitmix64).
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// first is the run that comes first so far.
func (l *life) first() *run { return &l.runs[len(l.runs)-1] }

// failTook is how long a run that fails of a cause takes.
func (l *life) failTook(c causeID) time.Duration {
	if d := causes[c].took; d > 0 {
		return d + time.Duration(l.r.IntN(40))*time.Millisecond
	}
	return l.took()
}

// failBefore puts n failed runs before the first one, or before an instant if there
// is none, with backoffs between.
func (l *life) failBefore(n int, c causeID, due time.Time) {
	for i := range n {
		if len(l.runs) > 0 {
			due = l.first().due
		}
		took := l.failTook(c)
		backoff := scale(time.Second, l.r.Float64()*math.Exp2(float64(n-i)))
		l.claim(due.Add(-backoff-took), causes[c].outcome, c, took)
	}
}

// before puts a run that did not count before the first one.
func (l *life) before(outcome engine.Outcome, pause, took time.Duration) {
	l.claim(l.first().due.Add(-pause-took), outcome, noCause, took)
}

// lostFirst puts the run that went down with wrk-bill-3 before all others.
func (l *life) lostFirst() {
	at := l.w.now.Add(-lostLastBeat - 16*time.Second + time.Duration(l.lot.number%2)*2*time.Second)
	reaped := l.w.now.Add(-lostReaped)
	if len(l.runs) > 0 {
		l.first().due = reaped
	}
	x := l.claimBy(lostWorker, at, engine.OutcomeLeaseExpired, noCause, 0)
	x.started, x.finished = time.Time{}, reaped
	x.due = x.claimed.Add(-scale(20*time.Second, l.r.Float64()))
}

// settle brings the runs in order of time and numbers the attempts. What does not
// use up an attempt has the number that the next one has too.
func (l *life) settle() (used int) {
	for i, j := 0, len(l.runs)-1; i < j; i, j = i+1, j-1 {
		l.runs[i], l.runs[j] = l.runs[j], l.runs[i]
	}
	for i := range l.runs {
		x := &l.runs[i]
		x.attempt = used + 1
		if x.outcome == engine.OutcomeFailed || x.outcome == engine.OutcomeTimedOut {
			used++
		}
		if l.lot.replayed && i == len(l.runs)/2-1 {
			used = 0
		}
	}
	return used
}

// build draws the runs of a life by where it ends.
func (l *life) build() {
	at := l.w.now.Add(-l.lot.anchor)
	c := l.lot.cause
	switch l.lot.place {
	case completed:
		l.complete(at)
	case dead, discarded:
		l.die(at, c)
	case retrying:
		l.claim(at, causes[c].outcome, c, l.failTook(c))
		l.failBefore(l.r.IntN(l.max-1), c, time.Time{})
	case running:
		l.open = true
		l.claim(at, 0, noCause, 0)
		if c != noCause {
			l.failBefore(l.r.IntN(2), c, time.Time{})
		}
	case ready, cancelled:
		if c != noCause && (l.lot.lost || l.lot.place == cancelled || l.r.IntN(3) == 0) {
			l.failBefore(1, c, at)
		}
	case scheduled, held:
	}
	if l.lot.lost {
		l.lostFirst()
	}
}

func (l *life) complete(at time.Time) {
	l.claim(at, engine.OutcomeCompleted, noCause, l.took())
	if l.line.snoozes {
		for range l.r.IntN(4) {
			l.before(engine.OutcomeSnoozed, time.Duration(20+l.r.IntN(60))*time.Second, time.Duration(5+l.r.IntN(40))*time.Millisecond)
		}
	} else if l.line.jobType == "search.index" && l.r.IntN(2) == 0 {
		l.before(engine.OutcomeSnoozed, time.Duration(2+l.r.IntN(9))*time.Second, 3*time.Millisecond) // the row it indexes is still locked
	}
	if c, ok := passing[l.line.jobType]; ok && l.r.IntN(40) == 0 {
		l.failBefore(1+l.r.IntN(2), c, time.Time{})
	}
	if since := l.w.now.Add(-deployed); l.w.incident && l.line.crew == billingCrew && l.first().due.Before(since) && l.first().started.After(since) {
		l.before(engine.OutcomeHandedBack, 0, 40*time.Millisecond)
	}
}

func (l *life) die(at time.Time, c causeID) {
	n := 1
	switch causes[c].reason {
	case engine.ReasonExhausted:
		n = l.max
	case engine.ReasonPoison:
		n, l.crash = crashLimit, crashLimit
	case engine.ReasonPermanent, engine.ReasonExpired:
	}
	if l.lot.lost {
		at = l.w.now.Add(-l.lot.anchor % (150 * time.Second))
	}
	if l.lot.replayed {
		at = l.w.now.Add(-70*time.Second - l.lot.anchor%(9*time.Second))
		l.dieOnce(n, c, at)
		l.first().due = l.first().started.Add(-200 * time.Millisecond)
		at = l.first().due.Add(-time.Minute)
	}
	l.dieOnce(n, c, at)
}

// dieOnce puts n failed runs, the last of which ends at an instant, before the others.
func (l *life) dieOnce(n int, c causeID, at time.Time) {
	took := l.failTook(c)
	l.claim(at.Add(-took), causes[c].outcome, c, took)
	l.failBefore(n-1, c, time.Time{})
}

// crashLimit is CRASH_LIMIT's default.
const crashLimit = 3
