package api

// statsJSON is the answer of /api/v1/stats: the verdict and the five answers.
type statsJSON struct {
	At      stamp         `json:"at"`
	Verdict verdictJSON   `json:"verdict"`
	Flow    flowJSON      `json:"flow"`
	Failing failingJSON   `json:"failing"`
	Stuck   stuckJSON     `json:"stuck"`
	Workers fleetJSON     `json:"workers"`
	Changed []changeJSON  `json:"changed"`
	Dead    deadTallyJSON `json:"dead_letters"`
}

type verdictJSON struct {
	Level string   `json:"level"` // healthy, degraded, critical
	Text  string   `json:"text"`
	Cause string   `json:"cause,omitempty"`
	Since stamp    `json:"since,omitzero"`
	Also  []string `json:"also"`
}

type flowJSON struct {
	PerMinute flowRatesJSON `json:"per_minute"`
	Backlog15 *int64        `json:"backlog_change_15_minutes"` // null: too many to count
}

type flowRatesJSON struct {
	Enqueued  float64 `json:"enqueued"`
	Completed float64 `json:"completed"`
	Ended     float64 `json:"ended"` // runs, whatever came of them
}

type failingJSON struct {
	Runs5    int64              `json:"runs_5_minutes"`
	Failed5  int64              `json:"failed_5_minutes"`
	Runs60   int64              `json:"runs_60_minutes"`
	Failed60 int64              `json:"failed_60_minutes"`
	Groups   []failureGroupJSON `json:"groups"`
}

// failureGroupJSON is one of the commonest errors of an hour.
type failureGroupJSON struct {
	failureJSON
	Type    string `json:"type"`
	Queue   string `json:"queue"`
	N       int64  `json:"failed_60_minutes"`
	Recent  int64  `json:"failed_5_minutes"`
	FirstAt stamp  `json:"first_at,omitzero"`
}

type stuckJSON struct {
	Target seconds          `json:"latency_target_seconds"`
	Queues []stuckQueueJSON `json:"queues"`
}

type stuckQueueJSON struct {
	queueJSON
	Drain *seconds `json:"drain_seconds"` // null: it does not drain
}

type fleetJSON struct {
	Live     int `json:"live"`
	Late     int `json:"late"`
	Lost     int `json:"lost"`
	Draining int `json:"draining"`
	Slots    struct {
		Busy  int `json:"busy"`
		Total int `json:"total"`
		Stuck int `json:"stuck"`
	} `json:"slots"`
	Reaped15 int64              `json:"runs_lost_15_minutes"`
	Passes   map[string]seconds `json:"last_pass_seconds"` // by task of the upkeep
}

type changeJSON struct {
	At     stamp  `json:"at"`
	Action string `json:"action"`
	Kind   string `json:"target_kind"`
	Target string `json:"target"`
	By     string `json:"by"`
	Source string `json:"source"`
	Reason string `json:"reason,omitempty"`
}

type deadTallyJSON struct {
	Total    int64 `json:"total"`
	LastHour int64 `json:"died_60_minutes"`
}
