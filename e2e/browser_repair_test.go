package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// TestOperatorsRepairInTheBrowser shares a server and a worker; each journey has
// jobs, a queue and a browser context of its own.
func TestOperatorsRepairInTheBrowser(t *testing.T) {
	t.Parallel()
	s := stageOn(t, dbtest.NewURL(t), quick...)
	s.start("worker")
	for name, journey := range map[string]func(*testing.T, *stage){
		"replay by click":             replayByClick,
		"replay by keyboard":          replayByKeyboard,
		"replay without script":       replayWithoutScript,
		"replay from the job's page":  replayFromTheJob,
		"discard and undo":            discardAndUndo,
		"discard without script":      discardWithoutScript,
		"two operators, one job":      twoOperatorsOneJob,
		"two operators, one list":     twoOperatorsOneList,
		"cancel in the dialog":        cancelInTheDialog,
		"cancel without script":       cancelWithoutScript,
		"enqueue by JSON and follow":  enqueueAndFollow,
		"new job form":                newJobForm,
		"copy a job":                  copyAJob,
		"filter, page, link and back": filterPageLinkBack,
		"live updates hold still":     liveHoldsStill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journey(t, s)
		})
	}
}

// gateway is an HTTP server that jobs call. It fails until it is mended.
type gateway struct {
	url    string
	status atomic.Int64
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{}
	g.status.Store(http.StatusInternalServerError)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(g.status.Load())) }))
	t.Cleanup(server.Close)
	g.url = server.URL + "/"
	return g
}

func (g *gateway) mend() { g.status.Store(http.StatusOK) }

// dead enqueues a job that fails twice and dies.
func (s *stage) dead(t *testing.T, g *gateway, queue string) string {
	t.Helper()
	id, ok := s.post(fmt.Sprintf(`{"type":"webhook","queue":%q,"max_attempts":2,"payload":{"url":%q}}`, queue, g.url), "")
	if !ok {
		t.Fatal("enqueue was refused")
	}
	s.becomes(t, id, "dead_letter")
	return id
}

// becomes waits until a job is in a state.
func (s *stage) becomes(t *testing.T, id, state string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); s.job(id).Status != state; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("job %s is %s, not %s", id, s.job(id).Status, state)
		}
	}
}

func replayByClick(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "click")
	g.mend()
	v := s.visit(t)
	v.open("/")
	v.click(v.rail("Dead letters"))
	v.click(v.tab("View", "Jobs"))
	v.says(v.row(id), "2 of 2")
	v.click(v.button("Replay job " + short(id)))
	v.says(v.row(id), "Replayed → Ready")
	v.says(v.flash(), "was replayed and is ready again.")
	v.click(v.row(id).GetByRole("link", playwright.LocatorGetByRoleOptions{Name: "→ Ready"}))
	v.at("/jobs/" + id)
	v.says(v.GetByTestId("job-head"), "Completed")
	v.says(v.GetByRole("region", playwright.PageGetByRoleOptions{Name: "Activity"}), "Replayed")
	if got := outcomes(s.attempts(id)); !equal(got, []string{"failed", "failed", "completed"}) {
		t.Errorf("runs ended %v, want failed, failed, completed", got)
	}
}

func replayByKeyboard(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "keys")
	g.mend()
	v := s.visit(t)
	v.open("/")
	v.press("g", "d")
	v.at("/dlq")
	v.open("/dlq?view=jobs&queue=keys")
	v.press("j")
	v.must(expect.Locator(v.row(id).GetByRole("link").First()).ToBeFocused())
	v.press("r")
	v.says(v.row(id), "Replayed → Ready")
	v.says(v.flash(), "was replayed and is ready again.")
	v.press("j", "Enter")
	v.at("/jobs/" + id)
	v.says(v.GetByTestId("job-head"), "Completed")
	v.press("u")
	v.at("/jobs?queue=keys")
}

func replayWithoutScript(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "plain")
	g.mend()
	v := s.visit(t, withoutScript)
	v.open("/dlq?view=jobs&queue=plain")
	v.click(v.button("Replay job " + short(id)))
	v.at("/dlq?queue=plain&view=jobs")
	v.says(v.flash(), "was replayed and is ready again.")
	v.missing(v.row(id))
	v.click(v.flash().GetByRole("link"))
	v.at("/jobs/" + id)
	s.becomes(t, id, "completed")
	_, err := v.Reload()
	v.must(err)
	v.says(v.GetByTestId("job-head"), "Completed")
}

func replayFromTheJob(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "page")
	v := s.visit(t)
	v.open("/jobs/" + id)
	v.press("r") // dies again
	v.at("/jobs/" + id)
	v.says(v.flash(), "was replayed")
	s.becomes(t, id, "dead_letter")
	g.mend()
	v.click(v.button("Replay job " + short(id)))
	v.says(v.GetByTestId("job-head"), "Completed")
}

func discardAndUndo(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "undo")
	v := s.visit(t)
	v.open("/dlq?view=jobs&queue=undo")
	v.click(v.link("Discard job " + short(id)))
	v.says(v.dialog(), "Discard job "+short(id)+"?")
	v.must(v.dialog().GetByLabel("Reason (optional)").Fill("a test <b>order</b>"))
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Discard job"}))
	v.says(v.flash(), "was discarded. It can be restored for 7 days.")
	v.missing(v.row(id))
	v.click(v.button("Undo: restore job " + short(id)))
	v.says(v.flash(), "was restored to the dead letters.")
	v.sees(v.row(id))
	v.open("/jobs/" + id)
	activity := v.GetByRole("region", playwright.PageGetByRoleOptions{Name: "Activity"})
	v.says(activity, "a test <b>order</b>")
	v.says(activity, "Restored")
}

func discardWithoutScript(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "nodialog")
	v := s.visit(t, withoutScript)
	v.open("/dlq?view=jobs&queue=nodialog")
	v.click(v.link("Discard job " + short(id)))
	v.at("/dlq/" + id + "/discard")
	v.sees(v.heading("Discard job " + short(id) + "?"))
	v.click(v.button("Discard job"))
	v.says(v.flash(), "was discarded")
	v.click(v.tab("View", "Discarded"))
	v.click(v.button("Restore job " + short(id)))
	v.says(v.flash(), "was restored to the dead letters.")
	v.open("/dlq?view=jobs&queue=nodialog")
	v.sees(v.row(id))
}

// Two press Replay on a job's page: one replays it, the other reads who did.
func twoOperatorsOneJob(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "race")
	g.mend()
	two := [2]*visitor{s.visit(t), s.visit(t)}
	for _, v := range two {
		v.expects("the server responded with a status of 409")
		v.open("/jobs/" + id + "?live=off")
	}
	done := make(chan error, len(two))
	for _, v := range two {
		go func() { done <- v.button("Replay job " + short(id)).Click() }()
	}
	for range two {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for _, v := range two {
		v.must(expect.Locator(v.GetByText(regexp.MustCompile("was replayed and is ready again|The job has changed")).First()).ToBeVisible())
		changed, err := v.heading("The job has changed").IsVisible()
		v.must(err)
		if changed {
			refused++
			v.must(expect.Locator(v.GetByText(regexp.MustCompile("was not replayed: it is (waiting|running|completed)."))).ToBeVisible())
			v.must(expect.Locator(v.GetByText("Replayed by")).ToBeVisible())
		}
	}
	if refused != 1 {
		t.Errorf("%d of two operators were refused, want 1", refused)
	}
	s.becomes(t, id, "completed")
	if got := outcomes(s.attempts(id)); !equal(got, []string{"failed", "failed", "completed"}) {
		t.Errorf("runs ended %v, want failed, failed, completed: replayed once", got)
	}
}

// In the list, the second sees the row as it is now.
func twoOperatorsOneList(t *testing.T, s *stage) {
	g := newGateway(t)
	id := s.dead(t, g, "list")
	g.mend()
	first, second := s.visit(t), s.visit(t)
	first.open("/dlq?view=jobs&queue=list&live=off")
	second.open("/dlq?view=jobs&queue=list&live=off")
	first.click(first.button("Replay job " + short(id)))
	first.says(first.row(id), "Replayed → Ready")
	second.click(second.button("Replay job " + short(id)))
	second.must(expect.Locator(second.flash()).ToContainText(regexp.MustCompile("was not replayed: it is (waiting|running|completed).")))
	second.says(second.row(id), "Replayed by")
	second.missing(second.button("Replay job " + short(id)))
}
