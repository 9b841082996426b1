// RoundWorker.kt - rounds as WorkManager work, and the system's callbacks that reach the client.
// Untested: neither compiled nor run on a device here. Job's native half is job_jni.c.
package org.example.rounds

import android.app.Application
import android.content.ComponentCallbacks2
import android.content.Context
import android.content.res.Configuration
import android.net.ConnectivityManager
import android.net.Network
import android.net.NetworkCapabilities
import android.os.BatteryManager
import android.os.Build
import android.os.PowerManager
import androidx.work.Constraints
import androidx.work.ExistingWorkPolicy
import androidx.work.NetworkType
import androidx.work.OneTimeWorkRequestBuilder
import androidx.work.WorkManager
import androidx.work.Worker
import androidx.work.WorkerParameters
import java.util.concurrent.TimeUnit

object Job {
    const val DONE = 0
    const val RETRY = 1

    const val CALM = 0
    const val LOW = 1
    const val CRITICAL = 2

    init { System.loadLibrary("phone_job") }

    @JvmStatic external fun open(folder: String, url: String, caFile: String, key: ByteArray, budgetBytes: Long): Long
    @JvmStatic external fun close(handle: Long)
    @JvmStatic external fun add(handle: Long, pixels: ByteArray, label: Int): Boolean
    @JvmStatic external fun run(handle: Long): Int
    @JvmStatic external fun waitMs(handle: Long): Long
    @JvmStatic external fun expire(handle: Long)
    @JvmStatic external fun setConditions(handle: Long, isCharging: Boolean, isUnmetered: Boolean)
    @JvmStatic external fun setPressure(handle: Long, pressure: Int)
    @JvmStatic external fun withdraw(handle: Long): Boolean
}

/** Opens the job once a process, and hands the system's callbacks on. */
class RoundApp : Application(), ComponentCallbacks2 {
    var job = 0L
        private set

    override fun onCreate() {
        super.onCreate()
        // noBackupFilesDir: a store that comes back on another phone would pass for this one.
        job = Job.open("$noBackupFilesDir/rounds", "https://rounds.example.org", "$noBackupFilesDir/ca.pem",
            assets.open("signing.pub").readBytes(), 64L shl 20)
        watchNetwork()
        watchHeat()
    }

    // Memory: obeyed in the middle of a training step.
    override fun onTrimMemory(level: Int) {
        super.onTrimMemory(level)
        Job.setPressure(job, when {
            level == ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL -> Job.CRITICAL
            level >= ComponentCallbacks2.TRIM_MEMORY_COMPLETE -> Job.CRITICAL
            level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW -> Job.LOW
            else -> Job.CALM
        })
    }

    override fun onLowMemory() = Job.setPressure(job, Job.CRITICAL)
    override fun onConfigurationChanged(newConfig: Configuration) = super<Application>.onConfigurationChanged(newConfig)

    // Battery and metered networks: the client looks between pieces of work and during transfers.
    fun tellConditions() {
        val battery = getSystemService(BatteryManager::class.java)
        val network = getSystemService(ConnectivityManager::class.java)
        Job.setConditions(job, battery.isCharging, !network.isActiveNetworkMetered)
    }

    private fun watchNetwork() {
        getSystemService(ConnectivityManager::class.java)
            .registerDefaultNetworkCallback(object : ConnectivityManager.NetworkCallback() {
                override fun onCapabilitiesChanged(network: Network, now: NetworkCapabilities) = tellConditions()
                override fun onLost(network: Network) = tellConditions()
            })
    }

    // Heat: the round is paused; WorkManager resumes it.
    private fun watchHeat() {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.Q) {
            getSystemService(PowerManager::class.java).addThermalStatusListener { status ->
                if (status >= PowerManager.THERMAL_STATUS_SEVERE) Job.expire(job)
            }
        }
    }
}

class RoundWorker(context: Context, parameters: WorkerParameters) : Worker(context, parameters) {
    private val app = context.applicationContext as RoundApp

    override fun doWork(): Result { // on WorkManager's own thread
        app.tellConditions()
        return when (Job.run(app.job)) {
            Job.DONE -> { schedule(app, Job.waitMs(app.job)); Result.success() }
            Job.RETRY -> Result.retry()
            else -> Result.failure()
        }
    }

    // Constraints no longer hold, or the ten minutes are over.
    override fun onStopped() = Job.expire(app.job)
}

fun schedule(context: Context, waitMs: Long) {
    val constraints = Constraints.Builder().setRequiresCharging(true).setRequiresDeviceIdle(true)
        .setRequiredNetworkType(NetworkType.UNMETERED).build()
    WorkManager.getInstance(context).enqueueUniqueWork("round", ExistingWorkPolicy.APPEND_OR_REPLACE,
        OneTimeWorkRequestBuilder<RoundWorker>().setConstraints(constraints)
            .setInitialDelay(waitMs, TimeUnit.MILLISECONDS).build())
}
