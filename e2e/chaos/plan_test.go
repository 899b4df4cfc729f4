//go:build linux || darwin || freebsd

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// size says how much of everything a run has.
type size struct {
	Length    time.Duration // of the faults
	Workers   int
	Jobs      int
	Kills     int // SIGKILL of workers and server
	Terms     int // SIGTERM of workers
	Freezes   int // SIGSTOP of workers, 1.5 to 4 leases
	Crashes   int // of Postgres
	Cuts      int // connections cut right before or after a commit
	Resets    int // spells in which connections are reset
	Slowdowns int // spells in which the network is slow
	Pills     int // of each kind
}

// The kinds of faults.
const (
	kill     = "kill"
	term     = "term"
	freeze   = "freeze"
	crash    = "crash"
	cut      = "cut"
	reset    = "reset"
	slowdown = "slowdown"
)

// fault is one entry of the schedule.
type fault struct {
	At   time.Duration // from the begin of the run
	Kind string
	// On is what it hits: a program's number (the server is the last), or a proxy's.
	On int
	// For is how long a freeze, an outage or a spell lasts, and how long a killed
	// program stays away.
	For time.Duration
	// How tells a crash (immediate, kill, kill-all) and a cut (before, after).
	How string
}

func (f fault) String() string {
	return fmt.Sprintf("%8s %s of %d for %s %s", f.At.Round(time.Millisecond), f.Kind, f.On, f.For.Round(time.Millisecond), f.How)
}

// The proxies, by number.
const (
	producersProxy = iota
	workersProxy
	proxies
)

// afterlife is how long a thawed worker is spared.
const afterlife = 1500 * time.Millisecond

// schedule makes the faults of a run, in order: the same for the same seed.
func schedule(seed uint64, s size, lease time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	var all []fault
	at := func() time.Duration { return time.Duration(r.Int64N(int64(s.Length))) }
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	add := func(n int, make func() fault) {
		for range n {
			all = append(all, make())
		}
	}
	// A frozen program is left alone until it has had the time to write what it
	// may not write any more.
	frozen := make([][]fault, s.Workers+1)
	alone := func(f fault) bool {
		return !slices.ContainsFunc(frozen[f.On], func(z fault) bool { return f.At < z.At+z.For+afterlife && f.At+f.For > z.At-afterlife })
	}
	try := func(make func() fault) fault {
		f := make()
		for n := 0; !alone(f) && n < 1000; n++ {
			f = make()
		}
		return f
	}
	for range s.Freezes {
		f := try(func() fault {
			return fault{At: at(), Kind: freeze, On: r.IntN(s.Workers), For: between(lease*3/2, lease*4)}
		})
		frozen[f.On] = append(frozen[f.On], f)
		all = append(all, f)
	}
	add(s.Kills, func() fault {
		return try(func() fault {
			on := r.IntN(s.Workers)
			if r.IntN(12) == 0 {
				on = s.Workers // the server
			}
			return fault{At: at(), Kind: kill, On: on, For: between(0, 300*time.Millisecond)}
		})
	})
	add(s.Terms, func() fault {
		return try(func() fault {
			return fault{At: at(), Kind: term, On: r.IntN(s.Workers), For: between(0, 300*time.Millisecond)}
		})
	})
	ways := []string{"immediate", "kill", "kill-all"}
	for i := range s.Crashes {
		// Apart from each other, so that the programs get to work in between.
		slice := s.Length / time.Duration(s.Crashes)
		begin := slice * time.Duration(i)
		all = append(all, fault{At: begin + between(slice/4, slice*3/4), Kind: crash, For: between(50*time.Millisecond, 1500*time.Millisecond), How: ways[r.IntN(len(ways))]})
	}
	add(s.Cuts, func() fault {
		return fault{At: at(), Kind: cut, On: r.IntN(proxies), How: []string{"before", "after"}[r.IntN(2)]}
	})
	add(s.Resets, func() fault {
		return fault{At: at(), Kind: reset, On: r.IntN(proxies), For: between(50*time.Millisecond, 400*time.Millisecond)}
	})
	add(s.Slowdowns, func() fault {
		return fault{At: at(), Kind: slowdown, On: r.IntN(proxies), For: between(500*time.Millisecond, 2*time.Second)}
	})
	slices.SortStableFunc(all, func(a, b fault) int { return int(a.At - b.At) })
	return all
}

// only keeps the faults of some kinds: a violation is shrunk by leaving kinds out
// while it still shows.
func only(all []fault, kinds []string) []fault {
	if len(kinds) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(f fault) bool { return !slices.Contains(kinds, f.Kind) })
}

func TestTheSameSeedGivesTheSameSchedule(t *testing.T) {
	t.Parallel()
	s, lease := sizes["full"], 1500*time.Millisecond
	first := schedule(7, s, lease)
	if d := cmp.Diff(first, schedule(7, s, lease)); d != "" {
		t.Errorf("seed 7 gave two schedules:\n%s", d)
	}
	if cmp.Equal(first, schedule(8, s, lease)) {
		t.Error("seeds 7 and 8 gave one schedule")
	}
}

func TestAScheduleHasWhatItsSizeSays(t *testing.T) {
	t.Parallel()
	lease := 1500 * time.Millisecond
	for name, s := range sizes {
		for seed := range uint64(20) {
			count := map[string]int{}
			var last time.Duration
			for _, f := range schedule(seed, s, lease) {
				count[f.Kind]++
				if f.At < last || f.At >= s.Length {
					t.Errorf("%s, seed %d: %s comes after %s, in a run of %s", name, seed, f, last, s.Length)
				}
				last = f.At
				if f.Kind == freeze && (f.For < lease*3/2 || f.For > lease*4) {
					t.Errorf("%s, seed %d: %s, want 1.5 to 4 leases of %s", name, seed, f, lease)
				}
				if (f.Kind == term || f.Kind == freeze) && f.On >= s.Workers {
					t.Errorf("%s, seed %d: %s, want a worker", name, seed, f)
				}
			}
			want := map[string]int{kill: s.Kills, term: s.Terms, freeze: s.Freezes, crash: s.Crashes, cut: s.Cuts, reset: s.Resets, slowdown: s.Slowdowns}
			if d := cmp.Diff(want, count); d != "" {
				t.Errorf("%s, seed %d (-want +got):\n%s", name, seed, d)
			}
		}
	}
}

func TestAZombieIsLeftAlone(t *testing.T) {
	t.Parallel()
	lease := 1500 * time.Millisecond
	for seed := range uint64(20) {
		plan := schedule(seed, sizes["full"], lease)
		for i, z := range plan {
			for _, f := range plan[i+1:] {
				program := f.Kind == kill || f.Kind == term || f.Kind == freeze
				if z.Kind == freeze && program && f.On == z.On && f.At < z.At+z.For+afterlife {
					t.Errorf("seed %d: %s while %s", seed, f, z)
				}
			}
		}
	}
}

func TestOnlyLeavesKindsOut(t *testing.T) {
	t.Parallel()
	for _, f := range only(schedule(1, sizes["short"], time.Second), []string{cut, crash}) {
		if f.Kind != cut && f.Kind != crash {
			t.Errorf("%s is left", f)
		}
	}
}
