import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Apache RocketMQ's own Java client, which does what twinclients.py tells it: Twin NAMESRV BROKER. A line of input is an operation in
 * JSON: its number (`id`), who does it (`on`: admin, producer, transacting, or the name of a consumer), what (`call`: a method with the
 * types of its arguments, or one of `consumer`, `listen`, `came`, `checks`) and `args`. The answer is a line with the same number, when
 * it comes: `told` or `failed`.
 *
 * <p>An argument {"of": N, "take": X} is what operation N was answered (X: a property of a SendResult, or "itself"), or X "before": the time in ms right
 * before it. Messages say what their listeners do with them: property `plan`, a word for each time that they come.
 */
public final class Twin {
    private static final Map<String, Object> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, List<Object>> CAME = new ConcurrentHashMap<>(); // by consumer, and what was asked by topic
    private static final Map<Integer, Object> ANSWERS = new ConcurrentHashMap<>();
    private static final Map<Integer, Long> BEFORE = new ConcurrentHashMap<>();
    private static String nameserver;
    private static String broker;

    public static void main(String[] args) throws Exception {
        nameserver = args[0];
        broker = args[1];
        DefaultMQProducer producer = configured(new DefaultMQProducer("producers"), "producer");
        TransactionMQProducer transacting = configured(new TransactionMQProducer("transactors"), "transacting");
        transacting.setTransactionListener(new Listener());
        DefaultMQAdminExt admin = configured(new DefaultMQAdminExt(10_000), "admin");
        CLIENTS.putAll(Map.of("producer", producer, "transacting", transacting, "admin", admin));
        for (DefaultMQProducer each : List.of(producer, transacting)) {
            each.setSendMsgTimeout(20_000);
            each.start();
        }
        admin.start();
        System.out.println("STARTED");
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            pool.execute(() -> answer(asked));
        }
        System.exit(0);
    }

    private static <T extends ClientConfig> T configured(T client, String name) {
        client.setNamesrvAddr(nameserver);
        client.setInstanceName(name);
        client.setPollNameServerInterval(500);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        client.setVipChannelEnabled(false);
        return client;
    }

    private static void answer(JSONObject asked) {
        JSONObject answer = new JSONObject();
        answer.put("id", asked.get("id"));
        try {
            Object result = done(asked);
            if (result != null) {
                ANSWERS.put(asked.getInteger("id"), result);
            }
            answer.put("told", told(result));
        } catch (Throwable thrown) {
            Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            int code = error instanceof MQBrokerException failed ? failed.getResponseCode()
                    : error instanceof MQClientException failed ? failed.getResponseCode() : 0;
            answer.put("failed", List.of(error.getClass().getSimpleName(), code));
            answer.put("says", String.valueOf(error.getMessage()));
        }
        String line = "ANSWER " + JSON.toJSONString(answer, com.alibaba.fastjson2.JSONWriter.Feature.WriteNulls) + "\n";
        synchronized (System.out) {
            System.out.write(line.getBytes(StandardCharsets.UTF_8), 0, line.getBytes(StandardCharsets.UTF_8).length);
            System.out.flush();
        }
    }

    private static Object done(JSONObject asked) throws Exception {
        JSONArray args = asked.getJSONArray("args");
        String on = asked.getString("on");
        return switch (asked.getString("call")) {
            case "consumer" -> consumer(on, args.getJSONObject(0));
            case "listen" -> listen(on, args.getJSONObject(0));
            case "came", "checks" -> came(on, args.getIntValue(0), args.getIntValue(1));
            case "poll" -> polled((DefaultLitePullConsumer) CLIENTS.get(on), args.getIntValue(0));
            default -> called(asked.getIntValue("id"), CLIENTS.get(on), asked.getString("call"), args);
        };
    }

    private static Object called(int id, Object client, String call, JSONArray args) throws Exception {
        for (Method method : client.getClass().getMethods()) {
            String types = Arrays.stream(method.getParameterTypes()).map(Class::getSimpleName).collect(Collectors.joining(","));
            if (!call.equals(method.getName() + "(" + types + ")") || method.isBridge()) {
                continue;
            }
            Object[] made = new Object[args.size()];
            CompletableFuture<Object> later = new CompletableFuture<>();
            for (int i = 0; i < made.length; i++) {
                Type type = method.getGenericParameterTypes()[i];
                made[i] = type == SendCallback.class ? new Callback(later) : made(args.get(i), type);
            }
            Thread.sleep(5); // no two operations have the same time, also where a broker's clock counts other milliseconds
            BEFORE.put(id, System.currentTimeMillis() - 2);
            Object result = method.invoke(client, made);
            return Arrays.asList(method.getParameterTypes()).contains(SendCallback.class) ? awaited(later) : result;
        }
        throw new NoSuchMethodException(call);
    }

    private static Object awaited(CompletableFuture<Object> later) throws Exception {
        Object result = later.get(30, TimeUnit.SECONDS);
        if (result instanceof Throwable) {
            throw new InvocationTargetException((Throwable) result);
        }
        return result;
    }

    private record Callback(CompletableFuture<Object> later) implements SendCallback {
        @Override
        public void onSuccess(SendResult result) {
            later.complete(result);
        }

        @Override
        public void onException(Throwable error) {
            later.complete(error);
        }
    }

    // --- arguments

    private static Object made(Object given, Type type) throws Exception {
        if (given instanceof JSONObject object && object.containsKey("of")) {
            return taken(object.getIntValue("of"), object.getString("take"));
        }
        if (given == null || given.equals("$broker")) {
            return given == null ? null : broker;
        }
        if (type == Message.class) {
            return message((JSONObject) given);
        }
        if (type == MessageQueue.class) {
            return new MessageQueue(((JSONArray) given).getString(0), "broker-a", ((JSONArray) given).getIntValue(1));
        }
        if (type == MessageQueueSelector.class) {
            return new SelectMessageQueueByHash();
        }
        if (type instanceof ParameterizedType many && given instanceof JSONArray array) {
            return collected(array, many);
        }
        return JSON.parseObject(JSON.toJSONString(given), type);
    }

    /** A map is given as a list of pairs. */
    private static Object collected(JSONArray given, ParameterizedType type) throws Exception {
        Type[] of = type.getActualTypeArguments();
        if (of.length == 2) {
            Map<Object, Object> map = new HashMap<>();
            for (int i = 0; i < given.size(); i++) {
                map.put(made(given.getJSONArray(i).get(0), of[0]), made(given.getJSONArray(i).get(1), of[1]));
            }
            return map;
        }
        Collection<Object> many = type.getRawType() == Set.class ? new HashSet<>() : new ArrayList<>();
        for (Object each : given) {
            many.add(made(each, of[0]));
        }
        return many;
    }

    private static Object taken(int id, String what) throws Exception {
        if (what.equals("itself")) {
            return ANSWERS.get(id);
        }
        return what.equals("before") ? BEFORE.get(id) : SendResult.class.getMethod("get" + what).invoke(ANSWERS.get(id));
    }

    private static Message message(JSONObject given) {
        Message message = new Message();
        message.setTopic(given.getString("topic"));
        message.setBody(body(given));
        message.setFlag(given.getIntValue("flag"));
        if (given.containsKey("tags")) {
            message.setTags(given.getString("tags"));
        }
        if (given.containsKey("keys")) {
            message.setKeys(given.getList("keys", String.class));
        }
        if (given.containsKey("level")) {
            message.setDelayTimeLevel(given.getIntValue("level"));
        }
        if (given.containsKey("delayMs")) {
            message.setDelayTimeMs(given.getLongValue("delayMs"));
        }
        if (given.containsKey("deliverInMs")) {
            message.setDeliverTimeMs(System.currentTimeMillis() + given.getLongValue("deliverInMs"));
        }
        if (given.containsKey("priority")) {
            message.setPriority(given.getIntValue("priority"));
        }
        if (given.containsKey("properties")) {
            given.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    /** A text, or noise of a length, which cannot be compressed. */
    private static byte[] body(JSONObject given) {
        if (given.containsKey("noise")) {
            byte[] noise = new byte[given.getIntValue("noise")];
            new Random(noise.length).nextBytes(noise);
            return noise;
        }
        return given.containsKey("body") ? given.getString("body").getBytes(StandardCharsets.UTF_8) : null;
    }

    // --- answers

    private static Object told(Object value) {
        if (value instanceof SendResult result) {
            JSONObject told = new JSONObject();
            told.put("status", result.getSendStatus());
            told.put("queue", told(result.getMessageQueue()));
            told.put("offset", result.getQueueOffset());
            told.put("recall", result.getRecallHandle() != null);
            told.put("state", result instanceof TransactionSendResult ended ? ended.getLocalTransactionState() : null);
            return told;
        }
        if (value instanceof QueryResult found) {
            return told(found.getMessageList());
        }
        if (value instanceof MessageQueue queue) {
            return List.of(queue.getTopic(), queue.getQueueId());
        }
        if (value instanceof Message message) {
            return told(message);
        }
        if (value instanceof Collection<?> many) {
            return many.stream().map(Twin::told).toList();
        }
        if (value instanceof Map<?, ?> map && !(value instanceof JSONObject)) {
            return map.entrySet().stream().map(one -> Arrays.asList(told(one.getKey()), told(one.getValue()))).toList();
        }
        boolean plain = value == null || value instanceof String || value instanceof Number || value instanceof Boolean
                || value instanceof Enum || value instanceof JSONObject;
        return plain ? value : Map.of("bean", RemotingSerializable.toJson(value, false));
    }

    private static JSONObject told(Message message) {
        JSONObject told = new JSONObject();
        told.put("topic", message.getTopic());
        told.put("flag", message.getFlag());
        byte[] body = message.getBody();
        if (body == null || body.length < 200) {
            told.put("body", body == null ? null : new String(body, StandardCharsets.UTF_8));
        } else {
            CRC32 sum = new CRC32();
            sum.update(body);
            told.put("body", body.length + " bytes " + sum.getValue());
        }
        told.put("properties", new HashMap<>(message.getProperties()));
        if (message instanceof MessageExt stored) {
            told.put("queue", stored.getQueueId());
            told.put("offset", stored.getQueueOffset());
            told.put("times", stored.getReconsumeTimes());
            told.put("sysFlag", stored.getSysFlag());
        }
        return told;
    }

    // --- consumers

    private static Object consumer(String name, JSONObject settings) throws Exception {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(settings.getString("group")), name);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(settings.getString("from")));
        if (settings.containsKey("topic") && settings.containsKey("sql")) {
            consumer.subscribe(settings.getString("topic"), MessageSelector.bySql(settings.getString("sql")));
        } else if (settings.containsKey("topic")) {
            consumer.subscribe(settings.getString("topic"), settings.getString("tags"));
        }
        consumer.start();
        CLIENTS.put(name, consumer);
        return null;
    }

    /** All that comes until nothing came for so long. */
    private static Object polled(DefaultLitePullConsumer consumer, int quietMs) {
        List<MessageExt> found = new ArrayList<>();
        for (long last = System.nanoTime(); System.nanoTime() - last < quietMs * 1_000_000L; ) {
            List<MessageExt> more = consumer.poll(100);
            found.addAll(more);
            last = more.isEmpty() ? last : System.nanoTime();
        }
        return found;
    }

    private static Object listen(String name, JSONObject settings) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(settings.getString("group")), name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(settings.getString("from")));
        consumer.setMessageModel(MessageModel.valueOf(settings.getString("model")));
        consumer.setMaxReconsumeTimes(settings.getIntValue("times"));
        consumer.setClientRebalance(!settings.getBooleanValue("pop"));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        if (settings.containsKey("sql")) {
            consumer.subscribe(settings.getString("topic"), MessageSelector.bySql(settings.getString("sql")));
        } else {
            consumer.subscribe(settings.getString("topic"), settings.getString("tags"));
        }
        List<Object> came = Collections.synchronizedList(new ArrayList<>());
        CAME.put(name, came);
        if (settings.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                came.add(told(messages.get(0)));
                String word = planned(messages.get(0))[0];
                return word.equals("later") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                        : word.equals("null") ? null : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                came.add(told(messages.get(0)));
                String[] words = planned(messages.get(0));
                context.setDelayLevelWhenNextConsume(words.length > 1 ? Integer.parseInt(words[1]) : settings.getBooleanValue("pop") ? 0 : 1);
                return words[0].equals("later") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : words[0].equals("null") ? null : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        CLIENTS.put(name, consumer);
        consumer.start();
        return null;
    }

    private static String[] planned(MessageExt message) {
        String plan = message.getUserProperty("plan");
        String[] words = plan == null ? new String[0] : plan.split(" ");
        String word = message.getReconsumeTimes() < words.length ? words[message.getReconsumeTimes()] : "ok";
        if (word.equals("throw")) {
            throw new IllegalStateException("as planned");
        }
        if (word.equals("reply")) {
            try {
                Message reply = MessageUtil.createReplyMessage(message, ("reply to " + new String(message.getBody())).getBytes());
                ((DefaultMQProducer) CLIENTS.get("producer")).send(reply);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
        return word.split(":");
    }

    /** What came, when nothing came for so long. */
    private static Object came(String name, int quietMs, int atMostMs) throws InterruptedException {
        List<Object> came = CAME.computeIfAbsent(name, any -> Collections.synchronizedList(new ArrayList<>()));
        long end = System.nanoTime() + atMostMs * 1_000_000L;
        int known = came.size();
        for (long last = System.nanoTime(); System.nanoTime() - last < quietMs * 1_000_000L && System.nanoTime() < end; ) {
            Thread.sleep(20);
            last = came.size() == known ? last : System.nanoTime();
            known = came.size();
        }
        synchronized (came) {
            return new ArrayList<>(came);
        }
    }

    private static final class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
            return LocalTransactionState.valueOf((String) wanted);
        }

        /** Property `checks`: a state for each time that it is asked for. */
        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            CAME.computeIfAbsent("checks " + message.getTopic(), any -> Collections.synchronizedList(new ArrayList<>())).add(told(message));
            String[] states = message.getUserProperty("checks").split(" ");
            int time = Integer.parseInt(message.getUserProperty("TRANSACTION_CHECK_TIMES"));
            return LocalTransactionState.valueOf(states[Math.min(time, states.length) - 1]);
        }
    }
}
