// RocketMQ's Go client with a user of its own, as tests/interop/locked.py runs it:
//
//	main NAMESRV TOPIC GROUP USER SECRET OTHER
//
// Sends to TOPIC and consumes it until its input closes; now and then it tries to send to OTHER, which it may not. Lines on standard
// output: SENT number, REFUSED why, GOT body, FOREIGN if OTHER took a message.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var lock sync.Mutex

func tell(words ...string) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(strings.ReplaceAll(strings.Join(words, " "), "\n", " "))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	topic, group, other := os.Args[2], os.Args[3], os.Args[6]
	servers := primitive.NewPassthroughResolver(strings.Split(os.Args[1], ";"))
	who := primitive.Credentials{AccessKey: os.Args[4], SecretKey: os.Args[5]}
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(servers), producer.WithCredentials(who),
		producer.WithGroupName(group+"-producers"))
	must(err)
	must(sender.Start())
	reader, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(servers), consumer.WithCredentials(who),
		consumer.WithGroupName(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	must(reader.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range found {
			tell("GOT", string(message.Body))
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(reader.Start())
	done := make(chan bool)
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		close(done)
	}()
	for number := 0; ; number++ {
		select {
		case <-done:
			_ = sender.Shutdown()
			_ = reader.Shutdown()
			return
		case <-time.After(20 * time.Millisecond):
		}
		body := fmt.Sprintf("%s-%d", topic, number)
		if _, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body))); err != nil {
			tell("REFUSED", err.Error())
		} else {
			tell("SENT", body)
		}
		if number%50 == 0 {
			if _, err := sender.SendSync(context.Background(), primitive.NewMessage(other, []byte("foreign"))); err == nil {
				tell("FOREIGN")
			}
		}
	}
}
