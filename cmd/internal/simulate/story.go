package simulate

import "time"

// The instants of the incident, before now.
const (
	gatewayBroke = 7*time.Minute + 7*time.Second
	mailPaused   = 5 * time.Minute
	lostLastBeat = 4*time.Minute + 59*time.Second
	lostReaped   = 4*time.Minute + 25*time.Second
	lateWrite    = 3*time.Minute + 31*time.Second
	canary       = 2 * time.Minute
	deployed     = 16 * time.Minute

	history = 26 * time.Hour
	// oldest is how far back the first dead letter goes. Before history there is
	// nothing but dead letters.
	oldest = 3*24*time.Hour + 4*time.Hour
)

// line is one type in one queue: how often it comes and how it runs.
type line struct {
	queue, jobType string
	weight         int // of what completed
	took           time.Duration
	crew           crew
	snoozes        bool // its job asks again whether something far away is done
	payload        payloadKind
}

type crew uint8

const (
	billingCrew crew = iota
	mailCrew
	generalCrew
	nobody // no worker handles the type
)

// longQueue has 60 characters, which pages must bear.
const longQueue = "tenant-00042-europe-west-1-nightly-reconciliation-of-ledgers"

var lines = []line{
	{"mail", "email", 220, 180 * time.Millisecond, mailCrew, false, payEmail},
	{"mail", "email.digest", 30, 900 * time.Millisecond, mailCrew, false, payDigest},
	{"billing", "charge", 120, 700 * time.Millisecond, billingCrew, false, payCharge},
	{"billing", "refund", 12, 2800 * time.Millisecond, billingCrew, false, payCharge},
	{"billing", "invoice", 40, 90 * time.Millisecond, billingCrew, false, payInvoice},
	{"payouts", "payout", 15, 800 * time.Millisecond, billingCrew, false, payPayout},
	{"hooks", "webhook", 180, 210 * time.Millisecond, generalCrew, false, payWebhook},
	{"default", "crm.sync", 90, 450 * time.Millisecond, generalCrew, false, paySync},
	{"default", "search.index", 110, 25 * time.Millisecond, generalCrew, false, paySync},
	{"default", "thumbnail", 60, 1300 * time.Millisecond, generalCrew, false, payFile},
	{"default", "tenant.onboarding.provision-workspace-with-single-sign-on.europe-west-1", 4, 6 * time.Second, generalCrew, false, paySync},
	{"reports", "report", 12, 4200 * time.Millisecond, generalCrew, false, payReport},
	{"imports", "import.rows", 25, 9 * time.Second, generalCrew, true, payRows},
	{"exports", "export.csv", 14, 15 * time.Second, generalCrew, true, payFile},
	{"notifications", "push.notify", 50, 12 * time.Millisecond, mailCrew, false, paySync},
	{"audit", "audit.archive", 10, 30 * time.Millisecond, generalCrew, false, payFile},
	{"media", "video.transcode", 3, 41 * time.Second, generalCrew, false, payFile},
	{longQueue, "ledger.export", 5, 2200 * time.Millisecond, generalCrew, false, payPayout},
	{longQueue, "ledger.reconcile", 0, time.Second, nobody, false, payPayout},
}

// lineOf is the index of a type in lines.
func lineOf(jobType string) uint8 {
	for i := range lines {
		if lines[i].jobType == jobType {
			return uint8(i)
		}
	}
	panic("no line has the type " + jobType)
}

// group is a number of jobs of one type in one place. count is for the size of the
// drawn incident, about 12,000 jobs. A smaller simulation has fewer of them in
// proportion to full, a larger one more where grows.
type group struct {
	place    place
	jobType  string
	count    int
	full     int  // jobs from which count is kept in full
	grows    bool // beyond 12,000 jobs, by a third of what the jobs grow
	cause    causeID
	from, to time.Duration // before now
	incident bool          // not in a steady installation
	// Of the first so many: a run was lost with wrk-bill-3, or they were replayed
	// and died again.
	lost, replayed int
}

const minute, hour = time.Minute, time.Hour

// present is where jobs stand now, but for those that completed.
var present = []group{
	{place: dead, jobType: "charge", count: 312, full: 2000, cause: gatewayTimeout, from: 5*minute + 40*time.Second, to: 5 * time.Second, incident: true, lost: 8, replayed: 5},
	{place: dead, jobType: "webhook", count: 7, full: 2000, cause: endpointGone, from: 52 * minute, to: 2 * minute},
	{place: dead, jobType: "email", count: 6, full: 2000, cause: mailboxUnavailable, from: 55 * minute, to: 9 * minute},
	{place: dead, jobType: "webhook", count: 2, full: 2000, grows: true, cause: endpointGone, from: 3 * hour, to: 70 * minute},
	{place: dead, jobType: "email", count: 5, full: 2000, grows: true, cause: mailboxUnavailable, from: 24 * hour, to: 70 * minute},
	{place: dead, jobType: "report", count: 3, full: 2000, cause: crashed, from: 5 * hour, to: 2 * hour},
	{place: dead, jobType: "invoice", count: 2, full: 2000, grows: true, cause: invalidPayload, from: 48 * hour, to: 6 * hour},
	{place: dead, jobType: "import.rows", count: 2, full: 2000, cause: importRejected, from: 30 * hour, to: 3 * hour},
	{place: dead, jobType: "crm.sync", count: 2, full: 2000, grows: true, cause: syncDeadline, from: 72 * hour, to: 21 * hour},
	{place: discarded, jobType: "email", count: 12, full: 2000, cause: mailboxUnavailable, from: 20 * hour, to: 90 * minute},
	{place: discarded, jobType: "invoice", count: 6, full: 2000, cause: invalidPayload, from: 40 * hour, to: 7 * hour},

	{place: retrying, jobType: "charge", count: 118, full: 4000, cause: gatewayTimeout, from: 62 * time.Second, to: 12 * time.Second, incident: true, lost: 7},
	{place: retrying, jobType: "crm.sync", count: 1, full: 4000, grows: true, cause: syncDeadline, from: 40 * time.Second, to: 8 * time.Second},
	{place: retrying, jobType: "webhook", count: 1, full: 4000, grows: true, cause: connectionReset, from: 40 * time.Second, to: 4 * time.Second},
	{place: retrying, jobType: "email", count: 1, full: 4000, grows: true, cause: mailThrottled, from: 6 * minute, to: 5*minute + 4*time.Second},

	{place: ready, jobType: "email", count: 1900, full: 12000, grows: true, from: mailPaused - 5*time.Second, to: 0, incident: true},
	{place: ready, jobType: "email.digest", count: 171, full: 12000, grows: true, from: mailPaused - 5*time.Second, to: 0, incident: true},
	{place: ready, jobType: "charge", count: 190, full: 12000, grows: true, from: 161 * time.Second, to: 0, cause: gatewayTimeout, incident: true, lost: 5},
	{place: ready, jobType: "invoice", count: 24, full: 12000, grows: true, from: 150 * time.Second, to: 0, incident: true},
	{place: ready, jobType: "email", count: 9, full: 12000, grows: true, from: 400 * time.Millisecond, to: 0},
	{place: ready, jobType: "crm.sync", count: 7, full: 12000, grows: true, from: 400 * time.Millisecond, to: 0},
	{place: ready, jobType: "search.index", count: 5, full: 12000, grows: true, from: 300 * time.Millisecond, to: 0},
	{place: held, jobType: "ledger.reconcile", count: 24, full: 4000, grows: true, from: 25 * minute, to: minute},

	{place: scheduled, jobType: "email", count: 312, full: 12000, grows: true, from: 20 * hour, to: minute},
	{place: scheduled, jobType: "invoice", count: 36, full: 12000, grows: true, from: 20 * hour, to: minute},
	{place: scheduled, jobType: "crm.sync", count: 904, full: 12000, grows: true, from: 20 * hour, to: minute},
	{place: scheduled, jobType: "webhook", count: 140, full: 12000, grows: true, from: 20 * hour, to: minute},
	{place: scheduled, jobType: "report", count: 16, full: 12000, grows: true, from: 20 * hour, to: minute},

	{place: running, jobType: "charge", count: 40, full: 1000, cause: gatewayTimeout, from: 9900 * time.Millisecond, to: 300 * time.Millisecond, incident: true},
	{place: running, jobType: "webhook", count: 7, full: 1000, from: 400 * time.Millisecond, to: 20 * time.Millisecond},
	{place: running, jobType: "crm.sync", count: 9, full: 1000, from: 900 * time.Millisecond, to: 20 * time.Millisecond},
	{place: running, jobType: "report", count: 2, full: 1000, from: 5 * time.Second, to: time.Second},
	{place: running, jobType: "import.rows", count: 2, full: 1000, from: 9 * time.Second, to: 2 * time.Second},

	{place: cancelled, jobType: "charge", count: 4, full: 4000, from: 6 * minute, to: mailPaused + 5*time.Second, cause: gatewayTimeout, incident: true},
	{place: cancelled, jobType: "email", count: 9, full: 4000, grows: true, from: 20 * hour, to: 20 * minute},
	{place: cancelled, jobType: "report", count: 5, full: 4000, grows: true, from: 20 * hour, to: 20 * minute},
}

// size is how many of a group n jobs have.
func (g *group) size(n int) int {
	switch {
	case n < g.full:
		return g.count * n / g.full
	case g.grows && n > 36_000:
		return g.count * n / 36_000
	}
	return g.count
}
