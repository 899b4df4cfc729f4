package samplejobs

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
)

// CheckTarget returns a check of addresses that a webhook is to be sent to later:
// what [Register]'s webhooks would refuse of an address that is written as a number.
// A name is looked up when it is dialled, and checked then. Its errors are for
// whoever gave the address.
func CheckTarget(cfg Config) (func(rawURL string) error, error) {
	t, err := newTargets(cfg.WebhookAllowHosts, cfg.Development)
	if err != nil {
		return nil, err
	}
	return t.checkURL, nil
}

func (t *targets) checkURL(rawURL string) error {
	target, err := parseTarget(rawURL)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "url: "))
	}
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if name := hostName(u.Hostname()); name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761
		addr, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return nil // a name
	}
	return t.check(u.Hostname(), addr)
}
