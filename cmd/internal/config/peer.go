package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Peer is what a comparison of engines asks of one run of "jobctl bench peer".
// These variables are the comparison's, not settings of the product.
type Peer struct {
	URL      string // DATABASE_URL: a database of its own
	Scenario string // SCENARIO
	Jobs     int    // JOBS
	Conns    int    // CONNS
	Rate     int    // RATE, jobs a second
	Options  string // OPTIONS, key=value,key=value
}

// PeerFromEnvironment reads them. All mistakes come in one error.
func PeerFromEnvironment() (Peer, error) {
	p := Peer{URL: os.Getenv("DATABASE_URL"), Scenario: os.Getenv("SCENARIO"), Options: os.Getenv("OPTIONS")}
	var bad []error
	if p.URL == "" {
		bad = append(bad, errors.New("DATABASE_URL must be the address of the database to measure on"))
	}
	if p.Scenario == "" {
		bad = append(bad, errors.New("SCENARIO must be setup, fill-done, fill-future, bulk, single, drain or latency"))
	}
	for name, to := range map[string]*int{"JOBS": &p.Jobs, "CONNS": &p.Conns, "RATE": &p.Rate} {
		raw := os.Getenv(name)
		if raw == "" {
			continue
		}
		n, err := strconv.Atoi(raw)
		if err != nil || n < 0 {
			bad = append(bad, fmt.Errorf("%s %q must be a whole number, 0 or more", name, raw))
		}
		*to = n
	}
	return p, errors.Join(bad...)
}
