import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Loads what the other programs of the tests load, so that the machine keeps it for them (class data sharing): a nameserver, a
 * broker, a producer, a consumer, and mqadmin. Warm NAMESRV NAMESRV.CONF BROKER.CONF
 */
public final class Warm {
    public static void main(String[] args) throws Exception {
        NamesrvStartup.main(new String[] {"-c", args[1]});
        BrokerStartup.main(new String[] {"-c", args[2]});
        Interop.play(new String[] {"send", args[0], "Warm", "2"});
        Interop.play(new String[] {"consume", args[0], "Warm", "warm", "*"}); // until standard input ends, which is at once
        MQAdminStartup.main0(new String[] {"topicStatus", "-n", args[0], "-t", "Warm"}, null);
        Runtime.getRuntime().halt(0); // to stop a broker in order takes ten seconds
    }
}
