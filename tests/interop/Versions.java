import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What a service does, with the client of any version from 4.5.1 on: Versions NAMESRV TOPIC GROUP. Sends in every way, consumes by
 * tag, fails one message once, and pulls. One line for each thing that came, then PULLED and how many messages the topic has.
 */
public final class Versions {
    private static final Set<String> FAILED = ConcurrentHashMap.newKeySet();
    private static final Set<String> CAME = ConcurrentHashMap.newKeySet();
    private static final List<String> WANTED = List.of("single-0", "single-2", "batch-0", "batch-1", "oneway", "late", "kept", "again");

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "red");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                String body = new String(one.getBody());
                if (body.equals("again") && FAILED.add(body)) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                System.out.printf("CAME %s %d%n", body, one.getReconsumeTimes());
                CAME.add(body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer(args[2] + "-sellers");
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object how) {
                return (LocalTransactionState) how;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (int i = 0; i < 4; i++) {
            System.out.printf("SENT %s%n", producer.send(message(args[1], i % 2 == 0 ? "red" : "blue", "single-" + i)).getSendStatus());
        }
        System.out.printf("SENT %s%n", producer.send(List.of(message(args[1], "red", "batch-0"), message(args[1], "red", "batch-1"))).getSendStatus());
        producer.sendOneway(message(args[1], "red", "oneway"));
        Message late = message(args[1], "red", "late");
        late.setDelayTimeLevel(1);
        producer.send(late);
        producer.sendMessageInTransaction(message(args[1], "red", "kept"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(message(args[1], "red", "dropped"), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.send(message(args[1], "red", "again"));
        // A client learns of its retry topic with its next routes (30 s) and takes its queues when it balances again (each 20 s).
        for (int i = 0; i < 900 && !CAME.containsAll(WANTED); i++) {
            Thread.sleep(100);
        }
        System.out.printf("PULLED %d%n", pulled(args[0], args[1]));
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static int pulled(String nameservers, String topic) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("pullers");
        puller.setNamesrvAddr(nameservers);
        puller.start();
        int count = 0;
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(topic)) {
            PullResult found = puller.pull(queue, "*", puller.minOffset(queue), 32);
            count += found.getMsgFoundList() == null ? 0 : found.getMsgFoundList().size();
        }
        puller.shutdown();
        return count;
    }

    private static Message message(String topic, String tag, String body) {
        return new Message(topic, tag, body, body.getBytes());
    }
}
