package attach_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"softib/driver/live"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach"
	"softib/verbs/attach/server"
)

func try(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](v T, err error) T {
	try(err)
	return v
}

// up is what softib up does, as far as attached programs see it, and returns where they attach.
func up() (socket string, down func()) {
	f := get(live.New(get(topo.ParseSpec("star:2")), live.Config{}))
	get(f.BringUp())
	dir := get(os.MkdirTemp("", "softib-"))
	socket = filepath.Join(dir, "verbs")
	l := get(server.Listen(socket))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, f, "example", nil) }()
	return socket, func() {
		cancel()
		try(errors.Join(<-done, f.Close(), os.RemoveAll(dir)))
	}
}

// A program on two hosts at once sends from one to the other. With softib up running, attach.Options{Host: "h1"} is
// enough.
func Example() {
	socket, down := up()
	defer down()
	var mr [2]*verbs.MR
	var cq [2]*verbs.CQ
	var qp [2]*verbs.QP
	var info [2]verbs.Info
	for i, host := range []string{"h1", "h2"} {
		dev := get(attach.Open(attach.Options{Socket: socket, Host: host}))
		defer dev.Close()
		ctx := verbs.Open(dev)
		pd := get(ctx.AllocPD())
		mr[i] = get(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
		cq[i] = get(ctx.CreateCQ(16))
		qp[i] = get(pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq[i], RecvCQ: cq[i], Caps: verbs.DefaultCaps}))
		info[i] = get(qp[i].Info(1, 0))
	}
	try(qp[0].Connect(info[0], info[1], verbs.DefaultConnect))
	try(qp[1].Connect(info[1], info[0], verbs.DefaultConnect))

	try(qp[1].PostRecv(&verbs.RecvWR{SGList: mr[1].SGEs(0, 64)}))
	n := copy(mr[0].Bytes(), "across the fabric")
	try(qp[0].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: mr[0].SGEs(0, n)}))
	var wc [2]verbs.WC
	get(cq[0].Wait(context.Background(), wc[:1]))
	get(cq[1].Wait(context.Background(), wc[1:]))
	fmt.Printf("%v, and %v from LID %d to LID %d: %s\n", wc[0].Status, wc[1].Status, info[0].LID, info[1].LID,
		mr[1].Bytes()[:wc[1].ByteLen])
	// Output: SUCCESS, and SUCCESS from LID 1 to LID 2: across the fabric
}

// An error says what to do next.
func ExampleOpen() {
	_, err := attach.Open(attach.Options{Socket: "/nowhere/verbs", Host: "h1"})
	fmt.Println(errors.Is(err, attach.ErrNoFabric))

	socket, down := up()
	defer down()
	_, err = attach.Open(attach.Options{Socket: socket, Host: "h99"})
	fmt.Println(errors.Is(err, attach.ErrRefused))
	// Output:
	// true
	// true
}

// When the fabric ends, its devices fail as an adapter does that lost its power.
func ExampleDevice() {
	socket, down := up()
	dev := get(attach.Open(attach.Options{Socket: socket, Host: "h1"}))
	defer dev.Close()
	ctx := verbs.Open(dev)
	down()
	for {
		e := get(ctx.WaitEvent(context.Background()))
		if e.Type == verbs.EventDeviceFatal {
			fmt.Println(e.Type)
			return
		}
	}
	// Output: DEVICE_FATAL
}
