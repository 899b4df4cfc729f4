package api

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func (a *API) explainJob(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := a.ownJobID(c)
	if err != nil {
		return err
	}
	x, err := a.Read.Explain(c.Request().Context(), id, time.Time{})
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, explanationOf(x))
}

// explanationJSON says why a job is not running. Headline is the first check that
// failed, else the last.
type explanationJSON struct {
	JobID  engine.ID    `json:"job_id"`
	Status engine.State `json:"status"`
	At     stamp        `json:"at"`
	// Claimable: nothing is in the way but the jobs ahead.
	Claimable bool `json:"claimable"`
	// JobsAhead is null unless the job stands in line; more may stand beyond what was
	// looked at.
	JobsAhead     *int64       `json:"jobs_ahead"`
	JobsAheadMore bool         `json:"jobs_ahead_more,omitempty"`
	Headline      headlineJSON `json:"headline"`
	Checks        []checkJSON  `json:"checks"`
}

type headlineJSON struct {
	Code inspect.CheckCode `json:"code"`
	Text string            `json:"text"`
}

type checkJSON struct {
	Code     inspect.CheckCode `json:"code"`
	Verdict  inspect.Verdict   `json:"verdict"`
	Text     string            `json:"text"`
	Evidence map[string]any    `json:"evidence"`
	Action   *helpJSON         `json:"action,omitempty"`
}

// helpJSON is the one request that helps.
type helpJSON struct {
	Code   inspect.HelpCode `json:"code"`
	Method string           `json:"method"`
	Href   string           `json:"href"`
}

func explanationOf(x inspect.Explanation) explanationJSON {
	head := x.Headline()
	out := explanationJSON{
		JobID: x.ID, Status: x.State, At: stamp(x.At), Claimable: x.Claimable, JobsAheadMore: x.AheadMore,
		Headline: headlineJSON{head.Code, head.Text}, Checks: make([]checkJSON, len(x.Checks)),
	}
	if x.Ahead >= 0 {
		out.JobsAhead = &x.Ahead
	}
	for i, k := range x.Checks {
		out.Checks[i] = checkJSON{Code: k.Code, Verdict: k.Verdict, Text: k.Text, Evidence: evidenceOf(k.Evidence), Action: helpOf(x.ID, k.Help)}
	}
	return out
}

// evidenceOf puts evidence in the wire's words: durations in seconds, tokens as
// strings.
func evidenceOf(list []inspect.Evidence) map[string]any {
	out := make(map[string]any, len(list))
	for _, e := range list {
		switch v := e.Value.(type) {
		case time.Time:
			out[e.Name] = stamp(v)
		case time.Duration:
			out[e.Name+"_seconds"] = seconds(v)
		case inspect.Token:
			out[e.Name] = token(v)
		default:
			out[e.Name] = v
		}
	}
	return out
}

func helpOf(id engine.ID, h inspect.Help) *helpJSON {
	job, dead := "/api/v1/jobs/"+id.String(), "/api/v1/dlq/"+id.String()
	switch h.Code {
	case inspect.HelpRunNow:
		return &helpJSON{h.Code, http.MethodPost, job + "/run-now"}
	case inspect.HelpReplay:
		return &helpJSON{h.Code, http.MethodPost, dead + "/replay"}
	case inspect.HelpRestore:
		return &helpJSON{h.Code, http.MethodPost, dead + "/restore"}
	case inspect.HelpQueue:
		return &helpJSON{h.Code, http.MethodGet, "/api/v1/queues/" + url.PathEscape(h.Target)}
	case inspect.HelpWorker, inspect.HelpWorkers, inspect.HelpSystem: // workers tell who leads, too
		return &helpJSON{h.Code, http.MethodGet, "/api/v1/workers"}
	}
	return nil
}
