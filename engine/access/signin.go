package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

const (
	// freeTries fail without a wait, per name and per address; the wait after each
	// further one is sign_in_wait's, in the schema.
	freeTries = 5
	// forgetAfter a quiet while tries count from one again. It is longer than the
	// longest wait.
	forgetAfter = 15 * time.Minute
	// settleTimeout is for the writes after a password was checked. They happen
	// even if the caller has gone: else hanging up would hide a failed try.
	settleTimeout = 5 * time.Second
)

// Try is one attempt to sign in.
type Try struct {
	Name, Password string
	// Address is where it comes from. Of IPv6 the first 64 bits count as one
	// address, since one household has all the rest.
	Address   string
	UserAgent string
	RequestID string
	// OldToken is the session that the caller came with, if any. It ends.
	OldToken string
}

// SignedIn is a session that has just begun. Token is shown nowhere else.
type SignedIn struct {
	Session
	Token string
}

// SignIn checks a name and password and begins a session, always a new one. A hash
// whose parameters are no longer the current ones is made anew. Errors:
// [ErrBadCredentials]; *[ThrottledError] after 5 failures of the name or from the
// address, for a time that grows from 1 second to 5 minutes.
func (a *Accounts) SignIn(ctx context.Context, t Try) (SignedIn, error) {
	var in SignedIn
	err := a.prove(ctx, &t, func(ctx context.Context, user dbsqlc.GetUserByNameRow, stored hashed) (err error) {
		in, err = a.begin(ctx, t, user, stored)
		return err
	})
	if err != nil {
		return SignedIn{}, err
	}
	return in, nil
}

// ChangePassword is a person's own act: their password, which t has, proves as at a
// sign-in that it is they. All their sessions end. Errors: [*RuleError],
// [ErrBadCredentials]; *[ThrottledError], as of [Accounts.SignIn].
func (a *Accounts) ChangePassword(ctx context.Context, t Try, password string, by engine.Actor) error {
	if err := CheckPassword(foldName(t.Name), password); err != nil {
		return err
	}
	return a.prove(ctx, &t, func(ctx context.Context, user dbsqlc.GetUserByNameRow, _ hashed) error {
		hash := newHash(password).String()
		by.Version = int(user.Generation)
		err := a.change(ctx, "change_password", t.Name, by, changeOf{hash: &hash})
		if errors.Is(err, ErrUserChanged) {
			return ErrBadCredentials
		}
		return err
	})
}

// prove does something for who knows the password of a try. The try is counted
// before its password is looked at.
func (a *Accounts) prove(ctx context.Context, t *Try, do func(context.Context, dbsqlc.GetUserByNameRow, hashed) error) error {
	t.Name, t.Address, t.UserAgent = foldName(t.Name), brief(t.Address, maxAddress), brief(t.UserAgent, maxUserAgent)
	if err := a.checkWait(ctx, *t); err != nil {
		return err
	}
	leave, err := a.hash.enter(ctx)
	if errors.Is(err, errTooManyWait) {
		return &ThrottledError{Wait: time.Second}
	}
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	defer leave()
	failures, err := a.count(ctx, *t)
	if err != nil {
		return err
	}
	user, stored, err := a.find(ctx, t.Name)
	if err != nil {
		return err
	}
	fits := stored.matches(t.Password)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if !fits || user == nil || user.DisabledAt != nil {
		return a.refuse(ctx, *t, user, failures)
	}
	err = do(ctx, *user, stored)
	if errors.Is(err, ErrBadCredentials) { // changed while the password was checked
		return a.refuse(ctx, *t, user, failures)
	}
	return err
}

// checkWait turns away who must wait, without counting and without a hash.
func (a *Accounts) checkWait(ctx context.Context, t Try) error {
	seconds, err := a.q.GetSignInWait(ctx, a.pool, network(t.Address), subjectOf(t.Name))
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	if seconds > 0 {
		return &ThrottledError{Wait: time.Duration(seconds * float64(time.Second))}
	}
	return nil
}

// count counts the try at its name as a failure, before its password is looked at.
func (a *Accounts) count(ctx context.Context, t Try) (failures int32, err error) {
	failures, err = a.q.CountNameTry(ctx, a.pool, subjectOf(t.Name), network(t.Address), forgetAfter.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		if err := a.checkWait(ctx, t); err != nil {
			return 0, err
		}
		return 0, &ThrottledError{Wait: time.Second} // what it had to wait for is over by now
	}
	if err != nil {
		return 0, fmt.Errorf("count try to sign in: %w", err)
	}
	return failures, nil
}

// find returns the account of this name and its hash; no account, and a hash that
// nothing fits, if there is none.
func (a *Accounts) find(ctx context.Context, name string) (*dbsqlc.GetUserByNameRow, hashed, error) {
	if !namePattern().MatchString(name) {
		name = "" // nobody's: what is asked for is what the try was counted under, not something like it
	}
	row, err := a.q.GetUserByName(ctx, a.pool, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nobody(), nil
	}
	if err != nil {
		return nil, hashed{}, fmt.Errorf("sign in: %w", err)
	}
	stored, err := parseHash(row.PasswordHash)
	if err != nil {
		return nil, hashed{}, fmt.Errorf("sign in user %s: %w", name, err)
	}
	return &row, stored, nil
}

// refuse counts a try that failed at its address. Past the free ones it stands in
// the audit trail; the growing wait bounds how many rows that makes.
func (a *Accounts) refuse(ctx context.Context, t Try, user *dbsqlc.GetUserByNameRow, ofName int32) error {
	target := "unknown name" // which may be a password typed into the wrong field
	if user != nil {
		target = user.Name
	}
	by := engine.Actor{Name: "anonymous", Source: "console", RequestID: t.RequestID, Address: t.Address}
	var failures int32
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		ofAddress, err := a.q.CountAddressFailure(ctx, tx, network(t.Address), forgetAfter.Seconds())
		failures = max(ofName, ofAddress)
		if err != nil || failures < freeTries {
			return err
		}
		return a.record(ctx, tx, by, "sign_in_refused", target, change{after: map[string]any{"failures": failures}, affected: 1})
	})
	if err != nil {
		return fmt.Errorf("count failed sign-in: %w", err)
	}
	if failures >= freeTries {
		a.logAct(ctx, by, "sign_in_refused", target)
	}
	return ErrBadCredentials
}

// begin ends the old session and begins the new one, unless the account has
// changed since it was read.
func (a *Accounts) begin(ctx context.Context, t Try, user dbsqlc.GetUserByNameRow, stored hashed) (SignedIn, error) {
	var newHashed *string
	if stored.parameters != current {
		newHashed = optional(newHash(t.Password).String())
	}
	by := engine.Actor{Name: user.Name, Source: "console", RequestID: t.RequestID, Address: t.Address}
	in := SignedIn{Session: Session{User: user.Name, Role: Role(user.Role), Queues: user.Queues, UserAgent: t.UserAgent, Address: t.Address}}
	var hash []byte
	in.Token, hash = newToken()
	err := a.act(ctx, by, "sign_in", user.Name, func(tx pgx.Tx) (change, error) {
		n, err := a.q.ConfirmSignIn(ctx, tx, newHashed, user.ID, user.Generation)
		if err != nil {
			return change{}, err
		}
		if n == 0 {
			return change{}, ErrBadCredentials
		}
		if err := a.endOld(ctx, tx, t.OldToken); err != nil {
			return change{}, err
		}
		row, err := a.q.InsertSession(ctx, tx, hash, user.ID, t.UserAgent, t.Address)
		if err != nil {
			return change{}, err
		}
		in.ID, in.CreatedAt, in.UsedAt = row.ID, row.CreatedAt, row.UsedAt
		err = a.q.ForgetSignInName(ctx, tx, subjectOf(t.Name))
		return change{after: map[string]any{"session": row.ID}, affected: 1}, err
	})
	if err != nil {
		return SignedIn{}, fmt.Errorf("sign in user %s: %w", user.Name, err)
	}
	in.Session = a.session(in.Session)
	return in, nil
}

func (a *Accounts) endOld(ctx context.Context, tx pgx.Tx, token string) error {
	hash, ok := hashToken(token)
	if !ok {
		return nil
	}
	if _, err := a.q.DeleteSession(ctx, tx, hash); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return nil
}

// subjectOf is the key under which tries at a name are counted.
func subjectOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// network is the key under which tries from an address are counted.
func network(address string) string {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	at = at.Unmap().WithZone("")
	if at.Is4() {
		return at.String()
	}
	p, err := at.Prefix(64)
	if err != nil {
		return address
	}
	return p.String()
}
