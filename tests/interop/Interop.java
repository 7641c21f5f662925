import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageType;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Apache RocketMQ's own Java client, driven by the tests of rmq: one line of output for each thing that happened.
 *
 *   send NAMESRV TOPIC COUNT          single sends, tags red and blue in turn, then one batch of three, then one one-way
 *   consume NAMESRV TOPIC GROUP TAGS  a push consumer until standard input closes
 *   orderly NAMESRV TOPIC GROUP       the same, each queue in order; the first message with key "again" fails once, and one with
 *                                     key "dead" always, until it came again twice
 *   failing NAMESRV TOPIC GROUP N M   the same, at any order; each message fails N times, and may come again M times
 *   mixing NAMESRV TOPIC GROUP        orderly, and says when it handled which message, for mixed.py
 *   tenant NAMESRV TOPIC GROUP V1 V2  one message, which fails once, as a client of those namespaces ("-": none); says its own names
 *   delay NAMESRV TOPIC               one message of each kind of delay, and one that is taken back
 *   late NAMESRV TOPIC GROUP          a push consumer that says how many ms after its time (property "due") a message came
 *   popping NAMESRV TOPIC GROUP N     the same for a group that pops (setMessageRequestMode): each message fails N times
 *   crossing NAMESRV TOPIC GROUP RATE  sends RATE messages a second with default settings and consumes them; says which sends failed,
 *                                     when, and how long nothing came; a line of input: no more sends; until input closes
 *   transact NAMESRV TOPIC GROUP ANSWER STATES   a message in a transaction for each state; ANSWER when asked; until input closes
 *   asking NAMESRV TOPIC GROUP SQL ASKED   answers what is asked in TOPIC, as far as SQL is true of it, and asks in ASKED for each
 *                                     line of input; until input closes
 *   locked NAMESRV TOPIC GROUP USER SECRET OTHER   sends to TOPIC and consumes it, and tries to send to OTHER; until input closes
 *   lights NAMESRV TOPIC GROUP READ NAMES...   a message to TOPIC for each NAMES (light queues, "a,b"); then all of light queue READ from
 *                                     GROUP's offset on, which is set behind it
 *   tracing NAMESRV TOPIC GROUP       what TraceDataEncoder makes of records; then a message, a transaction and a batch, sent and
 *                                     consumed by clients that trace; until input closes
 */
public final class Interop {
    public static void main(String[] args) {
        try {
            play(args);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // threads of clients would keep the program alive
        }
        System.exit(0);
    }

    static void play(String[] args) throws Exception {
        switch (args[0]) {
            case "send" -> send(args[1], args[2], Integer.parseInt(args[3]));
            case "signed" -> signed(args);
            case "locked" -> locked(args);
            case "consume" -> consume(args[1], args[2], args[3], args[4]);
            case "orderly" -> orderly(args[1], args[2], args[3]);
            case "failing" -> failing(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            case "delay" -> delay(args[1], args[2]);
            case "late" -> late(args[1], args[2], args[3]);
            case "popping" -> popping(args[1], args[2], args[3], Integer.parseInt(args[4]));
            case "transact" -> transact(args);
            case "asking" -> asking(args);
            case "lights" -> lights(args);
            case "tracing" -> tracing(args[1], args[2], args[3]);
            case "tenant" -> tenant(args[1], args[2], args[3], args[4], args[5]);
            case "mixing" -> mixing(args[1], args[2], args[3]);
            case "crossing" -> crossing(args[1], args[2], args[3], Integer.parseInt(args[4]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void lights(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("light-producers");
        producer.setNamesrvAddr(args[1]);
        producer.start();
        for (int i = 5; i < args.length; i++) {
            Message message = new Message(args[2], ("java-" + (i - 5)).getBytes(StandardCharsets.UTF_8));
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", args[i]);
            producer.send(message);
        }
        producer.shutdown();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args[3]);
        consumer.setNamesrvAddr(args[1]);
        consumer.start();
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(args[2]);
        String broker = consumer.fetchSubscribeMessageQueues(args[2]).iterator().next().getBrokerName();
        MessageQueue queue = new MessageQueue(args[4], broker, 0);
        long offset = Math.max(consumer.fetchConsumeOffset(queue, true), 0);
        for (PullResult found = consumer.pull(queue, "*", offset, 32); ; found = consumer.pull(queue, "*", offset, 32)) {
            if (found.getPullStatus() != PullStatus.FOUND) {
                break;
            }
            for (MessageExt message : found.getMsgFoundList()) {
                System.out.println("LIGHT " + message.getProperty("INNER_MULTI_QUEUE_OFFSET") + " " + new String(message.getBody()));
            }
            offset = found.getNextBeginOffset();
        }
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, offset);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
        consumer.shutdown();
    }

    private static void signed(String[] args) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[4], args[5]));
        DefaultMQProducer producer = new DefaultMQProducer("signed-producers", hook);
        producer.setNamesrvAddr(args[1]);
        producer.start();
        for (int i = 0; i < 3; i++) {
            try {
                print(producer.send(message(args[2], "red", "signed-" + i)));
            } catch (Exception e) {
                System.out.println("REFUSED " + String.valueOf(e.getMessage()).replace('\n', ' '));
            }
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3], hook);
        consumer.setNamesrvAddr(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(Interop::print);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer);
        producer.shutdown();
    }

    private static void send(String nameservers, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-producers");
        producer.setNamesrvAddr(nameservers);
        producer.setSendMsgTimeout(20_000); // what a program needs for its first message is in it, on a busy machine
        ofUnit(producer);
        producer.start();
        for (int i = 0; i < count; i++) {
            print(producer.send(message(topic, i % 2 == 0 ? "red" : "blue", "single-" + i)));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(message(topic, "red", "batch-" + i));
        }
        print(producer.send(batch));
        producer.sendOneway(message(topic, "blue", "oneway"));
        producer.shutdown();
    }

    private static Message message(String topic, String tag, String text) {
        Message message = new Message(topic, tag, "key-" + text, text.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("colour", tag);
        return message;
    }

    private static void locked(String[] args) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[4], args[5]));
        DefaultMQProducer producer = new DefaultMQProducer(args[3] + "-producers", hook);
        producer.setNamesrvAddr(args[1]);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3], hook);
        consumer.setNamesrvAddr(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> System.out.println("GOT " + new String(m.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        AtomicBoolean over = new AtomicBoolean(); // the client swallows an interrupt that comes while it sends
        Thread sending = new Thread(() -> {
            for (int i = 0; !over.get(); i++) {
                String body = args[2] + "-" + i;
                try {
                    producer.send(new Message(args[2], body.getBytes(StandardCharsets.UTF_8)));
                    System.out.println("SENT " + body);
                } catch (InterruptedException e) {
                    return;
                } catch (Exception e) {
                    System.out.println("REFUSED " + String.valueOf(e.getMessage()).replace('\n', ' '));
                }
                try {
                    if (i % 50 == 0) {
                        producer.send(new Message(args[6], "foreign".getBytes(StandardCharsets.UTF_8)));
                        System.out.println("FOREIGN");
                    }
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    return;
                } catch (Exception e) {
                    // as it should be
                }
            }
        });
        sending.start();
        while (System.in.read() >= 0) { }
        over.set(true);
        sending.join();
        producer.shutdown();
        consumer.shutdown();
    }

    private static void print(SendResult result) {
        System.out.printf("SENT %s %s %s %d %d%n", result.getSendStatus(), result.getMsgId(), result.getOffsetMsgId(),
                result.getMessageQueue().getQueueId(), result.getQueueOffset());
    }

    private static void delay(String nameservers, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-delays");
        producer.setNamesrvAddr(nameservers);
        producer.start();
        List<Message> messages = new ArrayList<>();
        for (String kind : List.of("level", "seconds", "millis", "deliver", "recalled")) {
            messages.add(message(topic, "red", kind));
        }
        long now = System.currentTimeMillis();
        messages.get(0).setDelayTimeLevel(2);
        messages.get(1).setDelayTimeSec(3);
        messages.get(2).setDelayTimeMs(2500);
        messages.get(3).setDeliverTimeMs(now + 4321);
        messages.get(4).setDelayTimeSec(5);
        long[] delays = {5000, 3000, 2500, 4321, 5000};
        for (int i = 0; i < delays.length; i++) {
            messages.get(i).putUserProperty("due", String.valueOf(now + delays[i]));
            SendResult result = producer.send(messages.get(i));
            print(result);
            if (i == 4) {
                System.out.printf("RECALLED %s %s%n", producer.recallMessage(topic, result.getRecallHandle()), result.getMsgId());
            }
        }
        producer.shutdown();
    }

    private static void late(String nameservers, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                System.out.printf("CAME %s %d%n", new String(m.getBody(), StandardCharsets.UTF_8),
                        m.getStoreTimestamp() - Long.parseLong(m.getUserProperty("due")));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer);
    }

    private static void transact(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args[3]);
        producer.setNamesrvAddr(args[1]);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return (LocalTransactionState) wanted;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                System.out.printf("CHECK %s %s %s %s%n", message.getTopic(), message.getKeys(), message.getTransactionId(),
                        message.getUserProperty("TRANSACTION_CHECK_TIMES"));
                return LocalTransactionState.valueOf(args[4]);
            }
        });
        producer.start();
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        while (!client.updateTopicRouteInfoFromNameServer(args[2])) { // else no broker would hear of it before it sends
            Thread.sleep(100);
        }
        client.sendHeartbeatToAllBrokerWithLock();
        for (int i = 5; i < args.length; i++) {
            LocalTransactionState wanted = LocalTransactionState.valueOf(args[i]);
            TransactionSendResult result = producer.sendMessageInTransaction(message(args[2], "red", args[i]), wanted);
            System.out.printf("SENT %s %s %s%n", result.getSendStatus(), result.getMsgId(), result.getTransactionId());
        }
        System.out.println("STARTED");
        while (System.in.read() >= 0) { }
        producer.shutdown();
    }

    private static void asking(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[3] + "-producers");
        producer.setNamesrvAddr(args[1]);
        producer.start();
        DefaultMQPushConsumer consumer = member(args[1], args[2], args[3], "*");
        consumer.subscribe(args[2], MessageSelector.bySql(args[4]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                System.out.printf("ASKED %s%n", new String(m.getBody(), StandardCharsets.UTF_8));
                byte[] body = ("java:" + new String(m.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                try {
                    print(producer.send(MessageUtil.createReplyMessage(m, body), 3000));
                } catch (Exception error) {
                    System.out.printf("FAILED %s%n", error);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("STARTED");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Message reply = producer.request(message(args[5], "red", line), 10_000);
            System.out.printf("REPLY %s%n", new String(reply.getBody(), StandardCharsets.UTF_8));
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private static void tracing(String nameservers, String topic, String group) throws Exception {
        for (TraceType type : List.of(TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter, TraceType.EndTransaction,
                TraceType.Recall)) {
            System.out.printf("SPELLED %s%n", TraceDataEncoder.encoderFromContextBean(context(type)).getTransData()
                    .replace((char) 1, '|').replace((char) 2, '#').replace(' ', '_'));
        }
        TransactionMQProducer producer = new TransactionMQProducer(group + "-producers");
        producer.setNamesrvAddr(nameservers);
        producer.setEnableTrace(true);
        producer.setTraceMsgBatchNum(1); // at once: what waits when a client is shut down is lost
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.setEnableTrace(true);
        consumer.setTraceMsgBatchNum(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> System.out.printf("TOOK %s%n", m.getMsgId()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        print(producer.send(message(topic, "red", "single")));
        print(producer.sendMessageInTransaction(message(topic, "blue", "half"), null));
        print(producer.send(List.of(new Message(topic, "a".getBytes()), new Message(topic, "b".getBytes()))));
        System.out.println("STARTED");
        while (System.in.read() >= 0) { }
        producer.shutdown();
        consumer.shutdown();
    }

    private static TraceContext context(TraceType type) {
        TraceBean bean = new TraceBean();
        bean.setTopic("T");
        bean.setMsgId("ID");
        bean.setTags(type == TraceType.Pub ? null : "a");
        bean.setKeys(type == TraceType.SubBefore ? "k1 k2" : type == TraceType.EndTransaction ? "k" : null);
        bean.setStoreHost("h:1");
        bean.setBodyLength(5);
        bean.setRetryTimes(2);
        bean.setOffsetMsgId("OFF");
        bean.setMsgType(type == TraceType.Pub ? MessageType.Delay_Msg : MessageType.Trans_msg_Commit);
        bean.setTransactionId("TX");
        bean.setTransactionState(LocalTransactionState.COMMIT_MESSAGE);
        bean.setFromTransactionCheck(true);
        TraceContext context = new TraceContext();
        context.setTraceType(type);
        context.setTimeStamp(type == TraceType.SubAfter ? 16 : 7);
        context.setRegionId(type == TraceType.Pub ? "DefaultRegion" : "R");
        context.setGroupName("g");
        context.setRequestId("REQ");
        context.setCostTime(type == TraceType.Pub ? 3 : 9);
        context.setSuccess(type == TraceType.Pub);
        context.setContextCode(4);
        context.setAccessChannel(AccessChannel.LOCAL);
        context.setTraceBeans(List.of(bean));
        return context;
    }

    private static void crossing(String nameservers, String topic, String group, int rate) throws Exception {
        Set<String> sent = ConcurrentHashMap.newKeySet();
        Set<String> came = ConcurrentHashMap.newKeySet();
        AtomicInteger tried = new AtomicInteger();
        AtomicInteger deliveries = new AtomicInteger();
        AtomicLong last = new AtomicLong();
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            long before = last.getAndSet(now);
            if (before > 0 && now - before > 300) {
                System.out.printf("PAUSE %d %d%n", before, now - before);
            }
            messages.forEach(m -> came.add(new String(m.getBody(), StandardCharsets.UTF_8)));
            deliveries.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(group + "-producers");
        producer.setNamesrvAddr(nameservers);
        producer.start();
        ScheduledExecutorService threads = Executors.newScheduledThreadPool(32);
        threads.scheduleAtFixedRate(() -> {
            String text = "m" + tried.incrementAndGet();
            threads.execute(() -> {
                long begun = System.currentTimeMillis();
                try {
                    producer.send(new Message(topic, text.getBytes(StandardCharsets.UTF_8)));
                    sent.add(text);
                } catch (Exception error) {
                    String why = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
                    System.out.printf("FAILED %d %d %s%n", begun, System.currentTimeMillis(),
                            why.substring(0, Math.min(300, why.length())));
                }
            });
        }, 0, 1_000_000 / rate, TimeUnit.MICROSECONDS);
        System.out.println("STARTED");
        System.in.read();
        threads.shutdown();
        threads.awaitTermination(20, TimeUnit.SECONDS);
        for (int i = 0; i < 300 && !came.containsAll(sent); i++) {
            Thread.sleep(100);
        }
        long missing = sent.stream().filter(text -> !came.contains(text)).count();
        System.out.printf("TOTAL %d %d %d %d%n", tried.get(), sent.size(), missing, deliveries.get() - came.size());
        producer.shutdown();
        while (System.in.read() >= 0) { }
        consumer.shutdown();
    }

    private static void consume(String nameservers, String topic, String group, String tags) throws Exception {
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(Interop::print);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer);
    }

    private static void orderly(String nameservers, String topic, String group) throws Exception {
        Set<String> failed = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt first = messages.get(0); // there is one [consumeMessageBatchMaxSize]
            print(first);
            boolean again = "again".equals(first.getKeys()) && failed.add(first.getMsgId()) || "dead".equals(first.getKeys());
            return again ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        run(consumer);
    }

    private static void mixing(String nameservers, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt m : messages) {
                System.out.printf("AT %d %d %d %s%n", System.currentTimeMillis(), m.getQueueId(), m.getQueueOffset(),
                        new String(m.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        run(consumer);
    }

    private static void tenant(String nameservers, String topic, String group, String v1, String v2) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        DefaultMQProducer producer = new DefaultMQProducer(group);
        for (ClientConfig one : List.of(consumer, producer)) {
            one.setNamesrvAddr(nameservers);
            if (!v1.equals("-")) one.setNamespace(v1);
            if (!v2.equals("-")) one.setNamespaceV2(v2);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt m = messages.get(0);
            System.out.printf("TRY %d %s %s%n", m.getReconsumeTimes(), m.getTopic(), new String(m.getBody(), StandardCharsets.UTF_8));
            context.setDelayLevelWhenNextConsume(1);
            boolean fails = m.getReconsumeTimes() == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        SendResult result = producer.send(message(topic, "red", "of " + v1 + " " + v2));
        System.out.printf("SENT %s %s%n", result.getSendStatus(), result.getMessageQueue().getTopic());
        run(consumer);
        producer.shutdown();
    }

    private static void failing(String nameservers, String topic, String group, int failures, int most) throws Exception {
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "*");
        consumer.setMaxReconsumeTimes(most);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt m = messages.get(0);
            System.out.printf("TRY %d %s %s%n", m.getReconsumeTimes(), m.getTopic(), m.getMsgId());
            context.setDelayLevelWhenNextConsume(1);
            boolean fails = m.getReconsumeTimes() < failures;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer);
    }

    private static void popping(String nameservers, String topic, String group, int failures) throws Exception {
        DefaultMQPushConsumer consumer = member(nameservers, topic, group, "red || blue");
        consumer.setClientRebalance(false); // the broker says who reads what, and how
        consumer.setPopInvisibleTime(60_000); // longer than a busy machine takes from the last message to the stop of the broker
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt m = messages.get(0);
            System.out.printf("TRY %d %s %s %s%n", m.getReconsumeTimes(), m.getTopic(), m.getMsgId(),
                    new String(m.getBody(), StandardCharsets.UTF_8));
            boolean fails = m.getReconsumeTimes() < failures;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("STARTED");
        while (System.in.read() >= 0) { }
        long until = System.currentTimeMillis() + 20_000; // who stops at once leaves acknowledgements unsent
        while (waiting(consumer) > 0 && System.currentTimeMillis() < until) {
            Thread.sleep(10);
        }
        consumer.shutdown();
        System.out.println("STOPPED");
    }

    private static int waiting(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getPopProcessQueueTable().values().stream()
                .mapToInt(one -> one.getWaiAckMsgCount()).sum();
    }

    private static void print(MessageExt m) {
        System.out.printf("GOT %d %d %s %s %s %s%n", m.getQueueId(), m.getQueueOffset(), m.getTags(), m.getKeys(),
                m.getUserProperty("colour"), new String(m.getBody(), StandardCharsets.UTF_8));
    }

    private static DefaultMQPushConsumer member(String nameservers, String topic, String group, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameservers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // else offsets of messages at work are not reported at the end
        consumer.subscribe(topic, tags);
        ofUnit(consumer);
        return consumer;
    }

    /** -Dunit=NAME: the program is of that unit. */
    private static void ofUnit(ClientConfig client) {
        String unit = System.getProperty("unit");
        client.setUnitName(unit);
        client.setUnitMode(unit != null);
    }

    private static void run(DefaultMQPushConsumer consumer) throws Exception {
        consumer.start();
        System.out.println("STARTED");
        while (System.in.read() >= 0) { }
        consumer.shutdown();
        System.out.println("STOPPED");
    }
}
