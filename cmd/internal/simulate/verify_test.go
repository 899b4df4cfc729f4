package simulate

import (
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// verifyBudget is what a check of a million jobs and as many runs may take.
const verifyBudget = 30 * time.Second

// A made-up past and present, in which every row is one that the engine could
// have written, breaks no rule of jobctl verify, and is checked in time.
func TestASimulatedHistoryBreaksNoRule(t *testing.T) {
	t.Parallel()
	for _, scenario := range Scenarios {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			simulate(t, pool, Options{Scenario: scenario, Jobs: *budgetJobs, Seed: 5})
			r, err := verify.Run(t.Context(), pool, verify.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range r.Results {
				if res.Verdict != verify.OK {
					t.Errorf("%s: %s %s %v", res.Rule.Name, res.Verdict, res.Problem, res.Offenders)
				}
			}
			t.Logf("%d jobs checked in %s", *budgetJobs, r.Took)
			if r.Took > verifyBudget {
				t.Errorf("%d jobs were checked in %s, want %s or less", *budgetJobs, r.Took, verifyBudget)
			}
		})
	}
}
