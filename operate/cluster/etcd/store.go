package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"softib/internal/patience"
	"softib/operate/cluster"
	"softib/proto/ib"
)

// Why etcd is of no use; match with errors.Is.
var (
	ErrSilent  = errors.New("etcd does not answer")
	ErrVersion = errors.New("etcd of an unknown version")
	ErrTLS     = errors.New("TLS with etcd does not work")
	ErrDenied  = errors.New("etcd does not let us")
)

// Store is an etcd, or several that are one, seen from below a fabric's prefix. It is safe for concurrent use.
type Store struct {
	at     URL
	client *clientv3.Client
	lease  pb.LeaseClient
	prefix string
	tls    *tls.Config // nil without TLS
}

// How connections behave: a new one is tried soon, one over which nothing comes is given up. etcd wants five seconds
// between pings.
const (
	redialMax   = time.Second
	pingEvery   = 6 * time.Second
	pingTimeout = 2 * time.Second
	// connectPatience is how long etcd may take to answer at first.
	connectPatience = 10 * time.Second
)

// Connect finds out whether there is an etcd that can be used.
func Connect(ctx context.Context, at URL) (*Store, error) {
	cfg := clientv3.Config{Endpoints: at.Endpoints, Logger: zap.NewNop(), DialTimeout: connectPatience,
		DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout, DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: pingTimeout,
				Backoff: backoff.Config{BaseDelay: redialMax / 10, Multiplier: 1.6, Jitter: 0.2,
					MaxDelay: redialMax}})}}
	if at.TLS {
		var err error
		if cfg.TLS, err = at.tlsConfig(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fail(urlNext, "etcd: %v: %w", at, err)
	}
	s := &Store{at: at, client: client, lease: pb.NewLeaseClient(client.ActiveConnection()), prefix: at.Prefix + "/",
		tls: cfg.TLS}
	if err := s.check(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// URL is where it is.
func (s *Store) URL() URL { return s.at }

// tlsConfig reads the files.
func (u URL) tlsConfig() (*tls.Config, error) {
	const next = "name files in PEM that can be read: ?ca=FILE&cert=FILE&key=FILE"
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.CA != "" {
		text, err := os.ReadFile(u.CA)
		if err != nil {
			return nil, fail(next, "etcd: %w: %w", ErrTLS, err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fail(next, "etcd: %w: %s has no certificate", ErrTLS, u.CA)
		}
	}
	if u.Cert != "" {
		pair, err := tls.LoadX509KeyPair(u.Cert, u.Key)
		if err != nil {
			return nil, fail(next, "etcd: %w: %s, %s: %w", ErrTLS, u.Cert, u.Key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// check asks whether what answers can do what is needed. clientv3's own Status would try until its time is up, and then
// not say why.
func (s *Store) check(ctx context.Context) error {
	ctx, cancel := patience.Context(ctx, connectPatience)
	defer cancel()
	server := pb.NewMaintenanceClient(s.client.ActiveConnection())
	is, err := server.Status(ctx, &pb.StatusRequest{})
	for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		is, err = server.Status(ctx, &pb.StatusRequest{}) // it listens, and is not ready to answer yet
	}
	if err != nil {
		return s.silent(err)
	}
	if err := checkVersion(is.Version); err != nil {
		return err
	}
	// The status is one server's; this needs as many as there have to be.
	if _, err := s.client.Get(ctx, s.prefix+cluster.HeadKey, clientv3.WithCountOnly()); err != nil {
		return s.silent(err)
	}
	return nil
}

// checkVersion takes 3.4 and what came after it: older ones lack promises that are relied on, and nobody knows what 4
// will promise.
func checkVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if major != "3" || err != nil || n < 4 {
		return fail("use an etcd 3.4 or newer, such as Debian's etcd-server", "etcd: %w: it says %q: want 3.4 or newer",
			ErrVersion, version)
	}
	return nil
}

// silent puts into words why there is no answer.
func (s *Store) silent(err error) error {
	if s.tls != nil {
		err = errors.Join(err, s.alert())
	}
	text := err.Error()
	switch {
	case isDenied(err):
		return fail("give the certificate's user rights below "+s.prefix+" in etcd", "etcd: %w: %w", ErrDenied, err)
	case strings.Contains(text, "tls:") || strings.Contains(text, "x509:") || strings.Contains(text, "certificate"):
		return fail("mend ca=, cert= and key= of the URL; etcdctl with the same files says more", "etcd: %w: %w",
			ErrTLS, err)
	case strings.Contains(text, "error reading server preface") || strings.Contains(text, "malformed HTTP"):
		return fail("etcd:// is for an etcd without TLS, etcds:// for one with; or it is not etcd at all",
			"etcd: %w: what is there speaks otherwise: %w", ErrSilent, err)
	}
	ends := strings.Join(s.at.Endpoints, ",")
	return fail("is it running there? etcdctl --endpoints "+ends+" endpoint health", "etcd: %s: %w: %w", ends,
		ErrSilent, err)
}

// alert is what the server has against our certificate. With TLS 1.3 it says that after the handshake, when gRPC has
// begun to write and sees a closed connection only.
func (s *Store) alert() error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: pingTimeout}, "tcp", s.at.Endpoints[0], s.tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(pingTimeout))
	var alert *net.OpError
	if _, err := conn.Read(make([]byte, 1)); errors.As(err, &alert) && !alert.Timeout() {
		return err
	}
	return nil
}

func isDenied(err error) bool {
	for _, e := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed,
		rpctypes.ErrInvalidAuthToken} {
		if errors.Is(err, e) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(e) {
			return true
		}
	}
	return false
}

// outcome says what became of a request that has failed. What is not known to be certain is not.
func outcome(err error) cluster.Outcome {
	is := func(e error) bool { return errors.Is(err, e) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(e) }
	switch {
	case is(rpctypes.ErrLeaseNotFound):
		return cluster.OutcomeGone
	case is(rpctypes.ErrNoSpace):
		return cluster.OutcomeFull
	case is(rpctypes.ErrCompacted):
		return cluster.OutcomeCompacted
	case isDenied(err), is(rpctypes.ErrRequestTooLarge), is(rpctypes.ErrTooManyOps), is(rpctypes.ErrTooManyRequests),
		is(rpctypes.ErrDuplicateKey), is(rpctypes.ErrCorrupt):
		return cluster.OutcomeRefused
	}
	switch status.Code(err) {
	case codes.Unimplemented, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		return cluster.OutcomeRefused
	}
	return cluster.OutcomeUnknown
}

// Do carries a request, other than OpWatch, and waits for its answer.
func (s *Store) Do(ctx context.Context, r cluster.Request) cluster.Answer {
	ctx, cancel := context.WithTimeout(ctx, durationOf(r.Patience))
	defer cancel()
	a := cluster.Answer{ID: r.ID}
	head, err := s.do(ctx, &r, &a)
	if err != nil {
		a.Outcome, a.Text = outcome(err), err.Error()
		return a
	}
	a.Rev, a.Term = head.GetRevision(), head.GetRaftTerm()
	return a
}

func durationOf(t ib.Time) time.Duration { return time.Duration(t / ib.Nanosecond) }

func (s *Store) do(ctx context.Context, r *cluster.Request, a *cluster.Answer) (*pb.ResponseHeader, error) {
	switch r.Op {
	case cluster.OpGrant:
		x, err := s.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: r.TTL})
		if err != nil {
			return nil, err
		}
		a.Lease, a.Granted = cluster.LeaseID(x.ID), x.TTL
		return x.Header, nil
	case cluster.OpKeepAlive:
		return s.keepAlive(ctx, r.Lease)
	case cluster.OpRevoke:
		x, err := s.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(r.Lease)})
		return x.GetHeader(), err
	case cluster.OpTimeToLive:
		x, err := s.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: int64(r.Lease)})
		if err != nil {
			return nil, err
		}
		a.TTL, a.Granted = x.TTL, x.GrantedTTL
		return x.Header, nil
	case cluster.OpGet:
		var opts []clientv3.OpOption
		if r.Prefix {
			opts = append(opts, clientv3.WithPrefix())
		}
		x, err := s.client.Get(ctx, s.prefix+r.Key, opts...)
		if err != nil {
			return nil, err
		}
		a.Pairs = s.pairs(nil, x.Kvs)
		return x.Header, nil
	case cluster.OpTxn:
		return s.txn(ctx, &r.Txn, a)
	}
	return nil, fmt.Errorf("etcd: %v is not for Do", r.Op)
}

// keepAlive renews a lease once. clientv3's own KeepAliveOnce tries again as fast as it can while nobody listens.
func (s *Store) keepAlive(ctx context.Context, id cluster.LeaseID) (*pb.ResponseHeader, error) {
	stream, err := s.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return nil, err
	}
	x, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	_ = stream.CloseSend()
	if x.TTL <= 0 {
		return nil, rpctypes.ErrLeaseNotFound
	}
	return x.Header, nil
}

func (s *Store) txn(ctx context.Context, t *cluster.Txn, a *cluster.Answer) (*pb.ResponseHeader, error) {
	var conds []clientv3.Cmp
	for _, c := range t.If {
		conds = append(conds, clientv3.Compare(clientv3.ModRevision(s.prefix+c.Key), "=", c.Mod))
	}
	var then, other []clientv3.Op
	for _, w := range t.Then {
		if w.Delete {
			then = append(then, clientv3.OpDelete(s.prefix+w.Key))
			continue
		}
		then = append(then, clientv3.OpPut(s.prefix+w.Key, string(w.Value),
			clientv3.WithLease(clientv3.LeaseID(w.Lease))))
	}
	for _, key := range t.Else {
		other = append(other, clientv3.OpGet(s.prefix+key))
	}
	x, err := s.client.Txn(ctx).If(conds...).Then(then...).Else(other...).Commit()
	if err != nil {
		return nil, err
	}
	if a.Held = x.Succeeded; !a.Held {
		for _, r := range x.Responses {
			a.Pairs = s.pairs(a.Pairs, r.GetResponseRange().GetKvs())
		}
	}
	return x.Header, nil
}

func (s *Store) pairs(to []cluster.Pair, kvs []*mvccpb.KeyValue) []cluster.Pair {
	for _, kv := range kvs {
		to = append(to, s.pair(kv))
	}
	return to
}

func (s *Store) pair(kv *mvccpb.KeyValue) cluster.Pair {
	return cluster.Pair{Key: strings.TrimPrefix(string(kv.Key), s.prefix), Value: kv.Value, Create: kv.CreateRevision,
		Mod: kv.ModRevision, Lease: cluster.LeaseID(kv.Lease)}
}

// Watch tells what changes, each revision as a whole, until ctx ends or the watch does: its last batch says why.
func (s *Store) Watch(ctx context.Context, r cluster.Request, tell func(cluster.Batch)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for x := range s.client.Watch(ctx, s.prefix+r.Key, clientv3.WithPrefix(), clientv3.WithRev(r.Rev)) {
		if err := x.Err(); err != nil {
			b := cluster.Batch{Watch: r.ID, Outcome: cluster.OutcomeUnknown}
			if x.CompactRevision != 0 || outcome(err) == cluster.OutcomeCompacted {
				b.Outcome = cluster.OutcomeCompacted
			}
			tell(b)
			return
		}
		b := cluster.Batch{Watch: r.ID}
		for _, ev := range x.Events {
			if b.Rev != ev.Kv.ModRevision && b.Changes != nil {
				tell(b)
				b.Changes = nil
			}
			b.Rev = ev.Kv.ModRevision
			b.Changes = append(b.Changes,
				cluster.PairChange{Pair: s.pair(ev.Kv), Deleted: ev.Type == mvccpb.Event_DELETE})
		}
		if b.Changes != nil {
			tell(b)
		}
	}
	if ctx.Err() == nil {
		tell(cluster.Batch{Watch: r.ID, Outcome: cluster.OutcomeUnknown})
	}
}

// History is the changes that made the fabric what it is, the newest last, as far as the store remembers them.
func (s *Store) History(ctx context.Context) ([]cluster.Change, error) {
	a := s.Do(ctx, cluster.Request{Op: cluster.OpGet, Key: cluster.HistoryPrefix, Prefix: true,
		Patience: ib.Time(connectPatience) * ib.Nanosecond})
	if a.Outcome != cluster.OutcomeDone {
		return nil, s.silent(errors.New(a.Text))
	}
	var list []cluster.Change
	for i := range a.Pairs {
		c, err := cluster.ParseChange(&a.Pairs[i])
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}
