package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// closedTarget is a port that nothing listens on here: discard, RFC 863.
const closedTarget = "http://127.0.0.1:9/hook"

// madeJob is one job of a simulation.
type madeJob struct {
	Type     string
	Payload  json.RawMessage
	Queue    string
	Priority engine.Priority
	Delay    time.Duration
	Attempts int // 0: the usual
	Tags     []string
}

// scenario makes a simulation's jobs. The same seed makes the same ones.
type scenario struct {
	rand   *rand.Rand
	target string // answers a GET with 2xx
}

// scenarios are the mixes, by name: how many of a hundred jobs fail, by each way to.
var scenarios = map[string]struct{ refused, badAddress, badReport int }{
	"steady":   {},
	"incident": {refused: 24, badAddress: 4, badReport: 2},
}

var scenarioNames = []string{"steady", "incident"}

// make returns n jobs of a scenario.
func (s *scenario) make(name string, n int) ([]madeJob, error) {
	mix := scenarios[name]
	jobs := make([]madeJob, n)
	for i := range jobs {
		job := s.common()
		var payload any
		switch roll := s.rand.IntN(100); {
		case roll < mix.refused:
			job.Type, job.Queue, job.Attempts = "webhook", "billing", 2+s.rand.IntN(2)
			job.Tags = append(job.Tags, "gateway")
			payload = s.charge(closedTarget, "POST")
		case roll < mix.refused+mix.badAddress:
			job.Type, job.Queue = "email", "mail"
			payload = s.mail(fmt.Sprintf("customer %d at example.com", 1+s.rand.IntN(500)))
		case roll < mix.refused+mix.badAddress+mix.badReport:
			job.Type, job.Queue = "report", "reports"
			payload = map[string]any{"kind": "revenue"}
		default:
			payload = s.healthy(&job)
		}
		var err error
		if job.Payload, err = json.Marshal(payload); err != nil {
			return nil, fmt.Errorf("make a job's payload: %w", err)
		}
		jobs[i] = job
	}
	return jobs, nil
}

// common draws what every job has.
func (s *scenario) common() madeJob {
	job := madeJob{Priority: engine.PriorityDefault, Tags: []string{"simulated", fmt.Sprintf("tenant-%02d", 1+s.rand.IntN(12))}}
	switch roll := s.rand.IntN(100); {
	case roll < 4:
		job.Priority = engine.PriorityCritical
	case roll < 16:
		job.Priority = engine.PriorityHigh
	case roll < 30:
		job.Priority = engine.PriorityLow
	}
	switch roll := s.rand.IntN(100); {
	case roll < 12:
		job.Delay = time.Duration(5+s.rand.IntN(115)) * time.Second
	case roll < 15:
		job.Delay = time.Duration(1+s.rand.IntN(48)) * time.Hour
	}
	return job
}

// healthy draws a job that completes.
func (s *scenario) healthy(job *madeJob) any {
	switch roll := s.rand.IntN(100); {
	case roll < 60:
		job.Type, job.Queue = "email", "mail"
		return s.mail(fmt.Sprintf("customer-%d@example.com", 1+s.rand.IntN(500)))
	case roll < 92:
		job.Type, job.Queue = "webhook", "hooks"
		if roll < 70 {
			job.Queue = "billing"
		}
		return s.charge(s.target, "GET")
	}
	job.Type, job.Queue = "report", "reports"
	kinds, forms := []string{"throughput", "failures", "latencies"}, []string{"csv", "html"}
	return map[string]any{"kind": kinds[s.rand.IntN(len(kinds))], "format": forms[s.rand.IntN(len(forms))]}
}

func (s *scenario) mail(to string) any {
	order := 1000 + s.rand.IntN(9000)
	subjects := []string{"Receipt %d", "Order %d has shipped", "Your invoice %d", "Reminder for order %d"}
	subject := fmt.Sprintf(subjects[s.rand.IntN(len(subjects))], order)
	return map[string]any{"to": to, "subject": subject, "text": fmt.Sprintf("%s.\n\nThank you.\n", subject)}
}

// charge is a webhook. What a GET would say in a body stands in a header.
func (s *scenario) charge(url, method string) any {
	// Larger than a float64 holds: what counts digits finds out.
	order := 1970670598291982290 + s.rand.Int64N(1_000_000)
	cents := 100 + s.rand.IntN(50_000)
	if method == "GET" {
		return map[string]any{"url": url, "method": method, "headers": map[string]string{"x-order": fmt.Sprint(order)}}
	}
	return map[string]any{"url": url, "method": method, "body": map[string]any{"order": order, "amount_cents": cents}}
}
